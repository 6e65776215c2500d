"""Matrix products of dtypes that cuBLAS lacks, integers and booleans. Kernel: kernels/gemm/strided.cu."""

from __future__ import annotations

import math

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, Strided, Tensor
from polyhal.backends.common.problems.gemm import Matrix, Product
from polyhal.hal.protocol import Launch
from polyhal_cupy.runtime import Runtime

_TILE = 16


def build(runtime: Runtime, p: Product) -> Launch:
    """Return the launch of a product without bias."""
    _, batch1, batch2 = p.batch
    args: Arguments = {
        "a": _strided(p.left), "b": _strided(p.right), "out": Tensor(p.out.place), "m": p.m, "n": p.n, "k": p.k,
        "batch1": batch1, "batch2": batch2,
    }  # fmt: skip
    definitions: dict[str, str | int | bool] = {"DTYPE": p.dtype.name, "TILE": _TILE, "LOGICAL": p.dtype.kind == "bool"}
    blocks = ceil_div(p.m, _TILE) * ceil_div(p.n, _TILE) * math.prod(p.batch)
    return runtime.launch("matmul", "gemm/strided", definitions, args, blocks, _TILE * _TILE, kernel="matmul")


def _strided(m: Matrix) -> Strided:
    batch0, batch1, batch2 = m.batch
    strides = {"row": m.row, "column": m.column, "batch0": batch0, "batch1": batch1, "batch2": batch2}
    return Strided(Tensor(m.place), strides)
