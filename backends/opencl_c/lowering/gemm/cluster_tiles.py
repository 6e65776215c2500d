"""Products of 16-bit operands by wgmma with Hopper's copy engine, whose copies clusters of groups share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, Tensor, Workspace
from polyhal.backends.common.problems.gemm import Matrix, Product
from polyhal.backends.opencl_c.lowering.gemm import split_k, staging, tile_configs
from polyhal.backends.opencl_c.lowering.gemm.arguments import definitions
from polyhal.backends.opencl_c.lowering.gemm.tile_configs import HALF_DTYPES, ClusterTile
from polyhal.backends.opencl_c.lowering.support.column_moments import column_moments
from polyhal.backends.opencl_c.lowering.support.epilogue import epilogue
from polyhal.backends.opencl_c.ptx import EXTENDED_HOPPER, Target
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Launch

_MAP_BYTES = 128
"""Bytes of a tensor map."""
_MAPS = 2
"""Tensors of a product."""
_SHARES = 4
"""Most tiles of columns whose groups add up rows of the left operand: a share of 16 rows keeps a warpgroup busy."""
_COPY_BYTES = 16
"""Bytes of which the strides of a tensor are multiples."""


def suits(runtime: Runtime, p: Product) -> bool:
    """Return whether the copy engine can copy both operands."""
    if not runtime.features.copy_engine or p.batch[0] * p.batch[1] > 1:
        return False
    return _is_tensor(p.left, p.dtype.itemsize) and _is_tensor(p.right, p.dtype.itemsize)


def splits(runtime: Runtime, p: Product) -> bool:
    """Return whether clusters would divide the terms of a product."""
    return tile_configs.choose(runtime, p, tile_configs.CLUSTERS, tile_configs.CLUSTER_TILES, turns=False)[1].splits > 1


def _row_chunks(column_tiles: int) -> int:
    """Return the chunks of 8 rows of a block that groups of one tile of columns add up."""
    return 8 if column_tiles == 1 else 4 if column_tiles < _SHARES else 2


def _is_tensor(matrix: Matrix, size: int) -> bool:
    strides = (matrix.row, matrix.column)
    if 1 not in strides or not matrix.aligned:
        return False
    line = strides[0] if strides[1] == 1 else strides[1]
    return line > 0 and not any(stride * size % _COPY_BYTES for stride in (line, matrix.batch[2]))


def multiply(
    runtime: Runtime,
    p: Product,
    staged: Product,
    args: Arguments,
    place: int,
    tiles: Mapping[ClusterTile, float] = tile_configs.CLUSTER_TILES,
    *,
    moments: bool = False,
) -> tuple[list[Launch], tuple[int, ...]]:
    """Build the launches that multiply the operands in `args`, in the layout of `staged`, with the fastest of `tiles`.

    `place` is the first workspace. If `moments` is set, the last one receives moments (lib/column_moments.h); only products of
    whole blocks of rows whose terms are not divided (`splits`) have them. Raises KernelBuildError.
    """
    turns = not moments and p.row_sums is None
    tile, split = tile_configs.choose(runtime, p, tile_configs.CLUSTERS, tiles, turns=turns)
    partial_sums = split.splits > 1
    epilogue_macros, epilogue_args = epilogue(replace(p, bias=None, epilogue=None) if partial_sums else p)
    rows: Arguments = {}
    if p.row_sums is not None and not partial_sums:
        rows = {"row_sums": Tensor(p.row_sums)}
    layouts = staging.definitions(staged, padded=staged.dtype is not p.dtype, ragged=True)
    halves = runtime.features.tensor_cores and p.out_dtype in HALF_DTYPES
    defined = definitions(
        staged,
        epilogue_macros,
        {name: layouts[name] for name in ("A_K_MAJOR", "B_K_MAJOR")},
        tile.macros,
        TENSOR_CORES=runtime.features.tensor_cores,
        SPLIT_K=partial_sums,
        MOMENTS=moments,
        ROW_SUMS=p.row_sums is not None,
        ROW_CHUNKS=_row_chunks(ceil_div(p.n, tile.columns)),
        PAIRS=p.n % 2 == 0 and (partial_sums or p.out.aligned),
        SHORT_RESULTS=halves,
        WIDTH=8 if halves and not partial_sums and p.n % 8 == 0 and p.out.aligned else 2,
    )
    work_tiles = tile_configs.count(tile, p) * split.splits
    groups = min(work_tiles, runtime.features.compute_units // tile.groups) * tile.groups
    maps, partial = Workspace(place), Workspace(place + 1)
    moment_args, moment_bytes = column_moments(p.m, p.n, place + 1) if moments else ({}, ())
    launch = runtime.launch(
        "gemm/wgmma_clusters",
        defined,
        {
            **args,
            **epilogue_args,
            "out": partial if partial_sums else Tensor(p.out.place),
            **moment_args,
            **rows,
            "maps": maps,
            "split_terms": split.terms,
            "work_tiles": work_tiles,
        },
        (groups * tile.items, 1, 1),
        (tile.items, 1, 1),
        target=Target(EXTENDED_HOPPER.architecture, groups=1, cluster=tile.groups)
        if runtime.features.tensor_cores
        else None,
    )
    launches = [launch, split_k.reduce(runtime, p, split, place + 1)] if partial_sums else [launch]
    return launches, (_MAPS * _MAP_BYTES * groups, *split_k.workspace(p, split), *moment_bytes)
