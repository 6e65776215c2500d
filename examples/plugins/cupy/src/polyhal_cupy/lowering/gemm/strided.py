"""Matrix products of dtypes that cuBLAS lacks, integers and booleans. Kernel: kernels/gemm/strided.cu."""

from __future__ import annotations

import math

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.problems.gemm import Product
from polyhal.hal.protocol import Launch
from polyhal_cupy.launch import longs, pointers, uints
from polyhal_cupy.runtime import Runtime

_TILE = 16


def build(runtime: Runtime, p: Product) -> Launch:
    """Return the launch of a product without bias."""
    parameters = [
        *pointers(p.left.place, p.right.place, p.out.place), *uints(p.m, p.n, p.k),
        *longs(p.left.row, p.left.column, p.right.row, p.right.column), *uints(*p.batch[1:]),
        *longs(*p.left.batch, *p.right.batch),
    ]  # fmt: skip
    definitions: dict[str, str | int | bool] = {"DTYPE": p.dtype.name, "TILE": _TILE, "LOGICAL": p.dtype.kind == "bool"}
    blocks = ceil_div(p.m, _TILE) * ceil_div(p.n, _TILE) * math.prod(p.batch)
    return runtime.launch("matmul", "gemm/strided", definitions, parameters, blocks, _TILE * _TILE, kernel="matmul")
