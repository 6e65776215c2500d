"""Launches with a persistent tile scheduler: as many groups as the device can hold, which loop over tiles."""

from __future__ import annotations

from dataclasses import replace

from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.launch import Arguments, Tensor, Workspace
from polyhal.backends.common.launching.split_k import SplitK
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl_c.lowering.gemm import split_k, staging, tile_configs
from polyhal.backends.opencl_c.lowering.gemm.arguments import definitions
from polyhal.backends.opencl_c.lowering.gemm.tile_configs import TensorCoreTile
from polyhal.backends.opencl_c.lowering.support.epilogue import epilogue
from polyhal.backends.opencl_c.ptx import EXTENDED_HOPPER
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Launch


def multiply(
    runtime: Runtime,
    kernel: str,
    p: Product,
    staged: Product,
    tile: TensorCoreTile,
    split: SplitK,
    macros: Definitions,
    args: Arguments,
    place: int,
) -> tuple[list[Launch], tuple[int, ...]]:
    """Build the launches that multiply the operands in `args`, in the layout of `staged`; `place` is the workspace."""
    partial_sums = split.splits > 1
    epilogue_macros, epilogue_args = epilogue(replace(p, bias=None, epilogue=None) if partial_sums else p)
    tensor_cores = runtime.features.tensor_cores
    layouts = staging.definitions(staged, padded=staged.dtype is not p.dtype, ragged=True)
    halves = tensor_cores and p.out_dtype in tile_configs.HALF_DTYPES
    defined = definitions(
        staged,
        epilogue_macros,
        macros,
        tile.macros,
        layouts,
        TENSOR_CORES=tensor_cores,
        SPLIT_K=partial_sums,
        PAIRS=p.n % 2 == 0 and (partial_sums or p.out.aligned),
        SHORT_RESULTS=halves,
        WIDTH=8 if halves and not partial_sums and p.n % 8 == 0 and p.out.aligned else 2,
    )
    work_tiles = tile_configs.count(tile, p) * split.splits
    groups = min(work_tiles, runtime.features.compute_units * tile_configs.resident(runtime, tile))
    out = Workspace(place) if partial_sums else Tensor(p.out.place)
    multiply = runtime.launch(
        kernel,
        defined,
        {**args, **epilogue_args, "out": out, "split_terms": split.terms, "work_tiles": work_tiles},
        (groups * tile.items, 1, 1),
        (tile.items, 1, 1),
        target=EXTENDED_HOPPER if tensor_cores and kernel == "gemm/wgmma" else None,
    )
    launches = [multiply, split_k.reduce(runtime, p, split, place)] if partial_sums else [multiply]
    return launches, split_k.workspace(p, split)
