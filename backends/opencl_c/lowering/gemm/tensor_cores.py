"""Matrix products on NVIDIA's tensor cores: choice of instructions, tiles, and representation of float32.

16-bit operands are multiplied directly. Float32 at precision `high` is split: on Hopper into three bfloat16 terms
before the product (bf16x3), elsewhere into two TF32 terms within it (3xTF32). At precision `medium` it is rounded to
TF32 or bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl_c.lowering.gemm import cluster_tiles, mma, tile_configs, wgmma
from polyhal.backends.opencl_c.lowering.gemm.tile_configs import WarpTile
from polyhal.backends.opencl_c.ptx import HOPPER
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.protocol import Launch

_MIN_MULTIPLY_ADDS = 1 << 28
"""Minimum multiply-adds for which wgmma saves more time than splitting float32 into bfloat16 terms costs."""
_MIN_WGMMA = 128
"""Minimum rows and columns that fill the tiles of wgmma."""
_MAX_COLUMNS_WITH_ROW_SUMS = 4096
"""Maximum columns of a product that also computes row sums, in the groups of its first columns, which take longer for it."""
_MIN_CLUSTER_SIDE = 33
"""Minimum rows and columns for tiles of 64 of them with copies by the copy engine: with few, the read of one operand counts."""


def candidates(runtime: Runtime, p: Product) -> list[Callable[[], Launch]]:
    """Return the builders of a product on tensor cores, fastest first; none for dtypes and precisions without them."""
    if not runtime.features.tensor_cores:
        return []
    if p.sum_class != "float" or p.dtype not in (*tile_configs.HALF_DTYPES, dtypes.float32):
        return []
    if p.dtype is dtypes.float32 and p.precision == "highest":
        return []
    side = min(p.m, p.n)
    few = p.dtype in tile_configs.HALF_DTYPES and side >= _MIN_CLUSTER_SIDE and cluster_tiles.suits(runtime, p)
    hopper = runtime.features.compute_capability == HOPPER and (side >= _MIN_WGMMA or few)
    tiles: Mapping[WarpTile, float]
    if p.dtype in tile_configs.HALF_DTYPES:
        bf16_terms, tiles = 1, tile_configs.HALF_TILES
    elif p.precision == "high":
        bf16_terms, tiles = 3, tile_configs.TF32X3_TILES
    else:
        bf16_terms, tiles = 1, tile_configs.TF32_TILES
    worth_splitting = p.dtype in tile_configs.HALF_DTYPES or p.count * p.m * p.n * p.k >= _MIN_MULTIPLY_ADDS
    by_mma = partial(mma.build, runtime, p, tiles, tf32_terms=min(bf16_terms, 2))
    if not (hopper and worth_splitting):
        return [by_mma]
    return [partial(wgmma.build, runtime, p, tile_configs.WGMMA_TILES[bf16_terms]), by_mma]


def supports_row_sums(runtime: Runtime, p: Product) -> bool:
    """Return whether the first of the candidates also computes row sums of the left operand."""
    large = min(p.m, p.n) >= _MIN_CLUSTER_SIDE and p.dtype in tile_configs.HALF_DTYPES
    return (
        large
        and p.n <= _MAX_COLUMNS_WITH_ROW_SUMS
        and p.left.row == 1
        and p.count == 1
        and cluster_tiles.suits(runtime, p)
    )
