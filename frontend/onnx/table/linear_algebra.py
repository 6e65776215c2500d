"""Products and determinants."""

from __future__ import annotations

from typing import Any

import polyhal as ph
from polyhal.nn import functional
from polyhal.onnx.registration import operator
from polyhal.tensor import Tensor


@operator("MatMul")
def matmul(a: Tensor, b: Tensor) -> Any:
    return ph.matmul(a, b)


@operator("Gemm")
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803
    transB: int = 0,  # noqa: N803
) -> Any:
    a = ph.transpose(a, 0, 1) if transA else a
    if transB and alpha == 1 and (c is None or (beta == 1 and c.shape == b.shape[:1])):
        return functional.linear(a, b, c)
    product = ph.matmul(a, ph.transpose(b, 0, 1) if transB else b)
    product = product if alpha == 1 else product * alpha
    return product if c is None else product + (c if beta == 1 else c * beta)


@operator("Einsum")
def einsum(*xs: Tensor, equation: str) -> Any:
    return ph.einsum(equation.replace(" ", ""), *xs)


@operator("Det")
def det(x: Tensor) -> Any:
    return ph.linalg.det(x)
