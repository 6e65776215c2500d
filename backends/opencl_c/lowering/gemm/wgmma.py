"""Matrix products by wgmma on Hopper's tensor cores.

Float32 operands are first rounded to bfloat16, or split into three bfloat16 terms (bf16x3); 16-bit ones are used
directly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from polyhal.backends.common.launching.launch import Tensor, Workspace, as_one
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl_c.lowering.gemm import (
    bf16_repair,
    bf16_split,
    cluster_tiles,
    persistent_tiles,
    staging,
    tile_configs,
)
from polyhal.backends.opencl_c.lowering.gemm.arguments import geometry
from polyhal.backends.opencl_c.lowering.gemm.tile_configs import WGMMA, WarpgroupTile
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.protocol import Launch

_MIN_REUSE = 512
"""Minimum rows of a, or columns of b, for which repacking the other operand beats loading it element by element."""
Memory = Tensor | Workspace


def build(runtime: Runtime, p: Product, tiles: Mapping[WarpgroupTile, float]) -> Launch:
    """Build the launch with the fastest of `tiles`. Without tensor cores, the kernel compiles to a portable fallback.

    Raises KernelBuildError.
    """
    terms = next(iter(tiles)).bf16_terms
    if p.dtype in tile_configs.HALF_DTYPES:
        copies, staged, (a, b) = _repacked(runtime, p)
        args = {**geometry(staged, a, b), "a_term_stride": 0, "b_term_stride": 0}
    else:
        left = bf16_split.split(runtime, p, p.left, (p.m, p.k), terms, p.workspace)
        right = bf16_split.split(runtime, p, p.right, (p.k, p.n), terms, p.workspace + 1)
        copies, staged = [left, right], replace(p, left=left.matrix, right=right.matrix, dtype=dtypes.bfloat16)
        args = {
            **geometry(staged, Workspace(p.workspace), Workspace(p.workspace + 1)),
            "a_term_stride": left.term_stride,
            "b_term_stride": right.term_stride,
        }
    place = p.workspace + len(copies)
    if terms == 1 and cluster_tiles.suits(runtime, staged):
        del args["a_term_stride"], args["b_term_stride"]
        launches, workspace = cluster_tiles.multiply(runtime, p, staged, args, place)
    else:
        tile, split = tile_configs.choose(runtime, p, WGMMA, tiles)
        launches, workspace = persistent_tiles.multiply(runtime, "gemm/wgmma", p, staged, tile, split, {}, args, place)
    launches = [*(copy.launch for copy in copies), *launches]
    if terms > 1:
        launches.append(bf16_repair.build(runtime, p))
    workspace = (*(copy.nbytes for copy in copies), *workspace)
    return as_one(launches, workspace)


def _repacked(runtime: Runtime, p: Product) -> tuple[list[bf16_split.SplitOperand], Product, tuple[Memory, Memory]]:
    """Repack 16-bit operands that would be loaded element by element.

    Returns the copies, the product of the operands to stage, and their memory.
    """
    size = p.dtype.itemsize
    a, b = p.left, p.right
    a_memory: Memory = Tensor(a.place)
    b_memory: Memory = Tensor(b.place)
    copies: list[bf16_split.SplitOperand] = []
    a_bytes = staging.choose(a, (a.row, a.column), (p.m, p.k), size, ragged=True).nbytes
    if p.n >= _MIN_REUSE and a_bytes <= size:
        copies.append(bf16_split.split(runtime, p, a, (p.m, p.k), 1, p.workspace))
        a, a_memory = copies[-1].matrix, Workspace(p.workspace)
    b_bytes = staging.choose(b, (b.column, b.row), (p.n, p.k), size, ragged=True).nbytes
    if p.m >= _MIN_REUSE and b_bytes <= size:
        place = p.workspace + len(copies)
        copies.append(bf16_split.split(runtime, p, b, (p.k, p.n), 1, place))
        b, b_memory = copies[-1].matrix, Workspace(place)
    return copies, replace(p, left=a, right=b), (a_memory, b_memory)
