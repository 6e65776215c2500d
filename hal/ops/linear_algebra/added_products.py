"""Sums of a tensor and a scaled product under PyTorch's names: `addmm` and its kin."""

from __future__ import annotations

from typing import Any

from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.layout.views import broadcast_to
from polyhal.hal.ops.linear_algebra.products import bmm, mm, mv, outer, require_axes
from polyhal.hal.ops.pointwise.selection import constant_in
from polyhal.hal.ops.reductions.sums import sum_
from polyhal.hal.ops.tensor_like import TensorLike

Number = float | int


def _sum(name: str, x: TensorLike, product: TensorLike, beta: Number, alpha: Number) -> Any:
    """`beta * x + alpha * product`; with `beta` 0, NaN and infinities of `x` are ignored.

    As in PyTorch, the numbers are converted to the product's dtype before they multiply.
    """
    if product.dtype.kind not in ("float", "complex"):
        kind = int if product.dtype.is_integral else bool
        beta, alpha = kind(beta), kind(alpha)
    scaled = product if alpha == 1 else product * alpha
    try:
        x = broadcast_to(x, product.shape)
    except ValueError as error:
        problem = f"input {tuple(x.shape)} does not broadcast to the product's shape {tuple(product.shape)}"
        raise ShapeError(message(name, problem)) from error
    if beta == 0:
        return constant_in(x, scaled) if x.dtype is scaled.dtype else scaled
    return (x if beta == 1 else x * beta) + scaled


@composite(in_place=True)
def addmm(x: TensorLike, mat1: TensorLike, mat2: TensorLike, *, beta: Number = 1, alpha: Number = 1) -> Any:
    """`beta * x + alpha * mat1 @ mat2` of matrices. With `beta` 0, `x` is ignored."""
    return _sum("addmm", x, mm(mat1, mat2), beta, alpha)


@composite(in_place=True)
def addmv(x: TensorLike, mat: TensorLike, vec: TensorLike, *, beta: Number = 1, alpha: Number = 1) -> Any:
    """`beta * x + alpha * mat @ vec` of a matrix and a vector. With `beta` 0, `x` is ignored."""
    return _sum("addmv", x, mv(mat, vec), beta, alpha)


@composite(in_place=True)
def addr(x: TensorLike, vec1: TensorLike, vec2: TensorLike, *, beta: Number = 1, alpha: Number = 1) -> Any:
    """`beta * x + alpha * outer(vec1, vec2)`. With `beta` 0, `x` is ignored."""
    return _sum("addr", x, outer(vec1, vec2), beta, alpha)


@composite(in_place=True)
def baddbmm(x: TensorLike, batch1: TensorLike, batch2: TensorLike, *, beta: Number = 1, alpha: Number = 1) -> Any:
    """`beta * x + alpha * batch1 @ batch2` of batches of matrices. With `beta` 0, `x` is ignored."""
    return _sum("baddbmm", x, bmm(batch1, batch2), beta, alpha)


@composite(in_place=True)
def addbmm(x: TensorLike, batch1: TensorLike, batch2: TensorLike, *, beta: Number = 1, alpha: Number = 1) -> Any:
    """`beta * x + alpha * (batch1 @ batch2).sum(0)`. With `beta` 0, `x` is ignored."""
    require_axes("addbmm", (batch1, 3), (batch2, 3))
    return _sum("addbmm", x, sum_(bmm(batch1, batch2), 0, dtype=batch1.dtype), beta, alpha)
