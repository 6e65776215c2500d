"""Determinants and functions of square matrices."""

from __future__ import annotations

import math
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.layout import contiguous_strides
from polyhal.hal.ops.complex_numbers.rules import real
from polyhal.hal.ops.composite import Returns, composite
from polyhal.hal.ops.layout.diagonal import identity_like
from polyhal.hal.ops.layout.window import overwrite
from polyhal.hal.ops.linear_algebra.decompositions.determinant import determinant, log_determinant
from polyhal.hal.ops.linear_algebra.decompositions.exponential import matrix_exponential
from polyhal.hal.ops.linear_algebra.inverses import inverse
from polyhal.hal.ops.linear_algebra.powers import positive_power
from polyhal.hal.ops.linear_algebra.results import SlogdetResult
from polyhal.hal.ops.pointwise.logic import less
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.tensor_like import TensorLike


@composite("linalg.")
def det(x: TensorLike) -> Any:
    """Determinants of square matrices (..., n, n). First and second derivatives exist for singular matrices too.

    >>> polyhal.linalg.det(polyhal.tensor([[2.0, 0.0], [0.0, 4.0]])).item()
    8.0
    """
    return determinant(x)


@composite("linalg.")
def slogdet(x: TensorLike) -> SlogdetResult:
    """Sign or phase, and logarithm of the absolute value, of determinants (..., n, n); 0 and -infinity of singular ones."""
    return SlogdetResult(*log_determinant(x))


@composite()
def logdet(x: TensorLike) -> Any:
    """Logarithms of determinants (..., n, n): -infinity where they are 0, NaN where they are negative."""
    sign, logabsdet = log_determinant(x)
    return where(less(sign, 0), math.nan, logabsdet)


@composite("linalg.", aten="linalg_matrix_exp")
def matrix_exp(x: Any) -> Any:
    """The exponential of square matrices (..., n, n), by scaling and squaring (Higham 2005); of halves, in float32."""
    if x.dtype in (dtypes.float16, dtypes.bfloat16):
        return matrix_exponential(x.cast(dtype=dtypes.float32)).cast(dtype=x.dtype)
    return matrix_exponential(x)


@composite("linalg.", returns=Returns.COPY)
def matrix_power(x: TensorLike, n: int) -> Any:
    """Powers of square matrices (..., m, m); negative ones of the inverse. Raises LinAlgError for singular matrices then.

    Raises ShapeError for matrices that are not square.
    """
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(message("matrix_power", f"shape {tuple(x.shape)}", expected="(..., m, m)"))
    if n == 0:
        return overwrite(x, identity_like(real(x)), x.shape, contiguous_strides(x.shape), 0)[
            0
        ]  # a constant function of x
    return positive_power(inverse(x) if n < 0 else x, abs(n))
