"""Matrix products by mma.sync on NVIDIA's tensor cores, compute capability 8.0 and later.

Float32 is rounded to TF32, or split into two TF32 terms within the product (3xTF32).
Source: Ootomo and Yokota, 2022, "Recovering single precision accuracy from Tensor Cores".
"""

from __future__ import annotations

from collections.abc import Mapping

from polyhal.backends.common.launching.launch import as_one
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl_c.lowering.gemm import bf16_repair, persistent_tiles, tile_configs
from polyhal.backends.opencl_c.lowering.gemm.arguments import geometry
from polyhal.backends.opencl_c.lowering.gemm.tile_configs import MMA, WarpTile
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.protocol import Launch


def build(runtime: Runtime, p: Product, tiles: Mapping[WarpTile, float], tf32_terms: int = 1) -> Launch:
    """Build the launch with the fastest of `tiles`. Without tensor cores, the kernel compiles to a portable fallback.

    Raises KernelBuildError.
    """
    tile, split = tile_configs.choose(runtime, p, MMA, tiles)
    macros = {"FLOAT32": p.dtype is dtypes.float32, "TF32_TERMS": tf32_terms}
    launches, workspace = persistent_tiles.multiply(
        runtime, "gemm/mma", p, p, tile, split, macros, geometry(p), p.workspace
    )
    if tf32_terms > 1:
        launches.append(bf16_repair.build(runtime, p))
    return as_one(launches, workspace)
