"""Diagonals and traces of matrices, and matrices of powers."""

from __future__ import annotations

from typing import Any

from polyhal.hal.dtypes import DType
from polyhal.hal.ops.composite import Returns, composite
from polyhal.hal.ops.layout.axes import unsqueeze
from polyhal.hal.ops.layout.diagonal import diagonal_view
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.views import broadcast_to, reshape
from polyhal.hal.ops.pointwise.exponential import pow_
from polyhal.hal.ops.reductions.scan import cumprod
from polyhal.hal.ops.reductions.sums import sum_
from polyhal.hal.ops.tensor_like import TensorLike


@composite(returns=Returns.VIEW)
def diagonal(x: TensorLike, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Diagonal number `offset` of the matrices in two axes, as the last axis.

    >>> polyhal.diagonal(polyhal.tensor([[1, 2], [3, 4]])).tolist()
    [1, 4]
    """
    return diagonal_view(x, offset, dim1, dim2)


@composite("linalg.")
def trace(x: TensorLike, offset: int = 0, *, dtype: DType | None = None) -> Any:
    """The sum of diagonal number `offset` of the matrices in the last two axes. Integers sum in 64 bits, or all in `dtype`.

    >>> polyhal.trace(polyhal.tensor([[1, 2], [3, 4]])).item()
    5
    """
    return sum_(diagonal_view(x, offset, -2, -1), -1, dtype=dtype)


@composite("linalg.diagonal", public=False, returns=Returns.VIEW)
def matrix_diagonal(A: TensorLike, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """Diagonal number `offset` of the matrices in two axes, the last two by default, as the last axis."""
    return diagonal_view(A, offset, dim1, dim2)


@composite("linalg.", public=False)
def vander(x: TensorLike, *, N: int | None = None) -> Any:
    """The Vandermonde matrices of vectors (..., n): powers 0 to N - 1 of each element, n of them by default."""
    x = reshape(x, (1,)) if x.ndim == 0 else x
    count = x.shape[-1] if N is None else N
    column = unsqueeze(x, -1)
    ones = pow_(column, 0)
    if count == 1:
        return ones
    powers = cumprod(broadcast_to(column, (*x.shape, count - 1)), -1)
    return concat([ones, powers], -1)
