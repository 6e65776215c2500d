"""Functions that make complex tensors of real ones, and real ones of complex ones."""

from __future__ import annotations

import math
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.core.dispatch import is_complex
from polyhal.hal.errors import ShapeError, UnsupportedDTypeError, message
from polyhal.hal.ops.complex_numbers import rules
from polyhal.hal.ops.complex_numbers.rules import join
from polyhal.hal.ops.composite import Returns, composite
from polyhal.hal.ops.layout.axes import transpose
from polyhal.hal.ops.layout.regions import copy, stack
from polyhal.hal.ops.pointwise.logic import equal, less, logical_or
from polyhal.hal.ops.pointwise.rounding import isnan
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.pointwise.trigonometry import atan2, cos, sin
from polyhal.hal.ops.tensor_like import TensorLike

_PARTS = (dtypes.float32, dtypes.float64)


def _checked(op: str, *parts: Any) -> None:
    for part in parts:
        if part.dtype not in _PARTS or part.dtype is not parts[0].dtype:
            names = " and ".join(p.dtype.name for p in parts)
            raise UnsupportedDTypeError(
                message(
                    op, f"got {names}", expected="float32 or float64, one for both parts", fix="cast with .to(dtype)"
                )
            )


@composite(method=False)
def complex(real: TensorLike, imag: TensorLike) -> Any:  # noqa: A001  PyTorch's name
    """The complex tensor of two real ones of one dtype, float32 or float64, which are copied."""
    _checked("complex", real, imag)
    return join(copy(real), copy(imag))


@composite(method=False, aten=".default")
def polar(abs: TensorLike, angle: TensorLike) -> Any:  # noqa: A002  PyTorch's names
    """The complex numbers `abs * exp(1j * angle)`, of float32 or float64."""
    _checked("polar", abs, angle)
    return join(abs * cos(angle), abs * sin(angle))


@composite(method=False, returns=Returns.VIEW)
def view_as_complex(x: TensorLike) -> Any:
    """The complex numbers whose parts are the two elements of the last axis of `x` (..., 2).

    Raises ShapeError for another last axis.
    """
    _checked("view_as_complex", x)
    if not x.ndim or x.shape[-1] != 2:
        raise ShapeError(message("view_as_complex", f"got shape {x.shape}", expected="a last axis of length 2"))
    return join(x[..., 0], x[..., 1])


@composite(method=False, returns=Returns.COPY)
def view_as_real(x: TensorLike) -> Any:
    """Both parts of complex numbers along a new last axis of length 2.

    Raises UnsupportedDTypeError for real tensors.
    """
    if not is_complex(x):
        raise UnsupportedDTypeError(message("view_as_real", f"got {x.dtype.name}", expected="complex numbers"))
    return stack([x.real, x.imag], -1)


@composite(method=False, returns=Returns.VIEW)
def real(x: TensorLike) -> Any:
    """The real part; real numbers themselves."""
    return rules.real(x)


@composite(method=False, returns=Returns.VIEW)
def imag(x: Any) -> Any:
    """The imaginary part of complex numbers. Raises UnsupportedDTypeError for real tensors."""
    if not is_complex(x):
        raise UnsupportedDTypeError(message("imag", f"got {x.dtype.name}", expected="complex numbers"))
    return x.imag


@composite("numpy.conjugate", returns=Returns.EITHER, aten="_conj_physical conj_physical conj_physical_")
def conj(x: TensorLike) -> Any:
    """The complex conjugate."""
    return join(x.real, -x.imag) if is_complex(x) else x


@composite(returns=Returns.EITHER)
def adjoint(x: TensorLike) -> Any:
    """The conjugate of the matrices (..., m, n), transposed."""
    return conj(transpose(x))


@composite(aten=".default")
def angle(x: Any) -> Any:
    """The angle in the complex plane, from -pi to pi; that of a negative number is pi, and NaN stays NaN."""
    if is_complex(x):
        return atan2(x.imag, x.real)
    x = x if x.dtype.kind == "float" else x.cast(dtype=dtypes.DEFAULT_FLOAT)
    return where(less(x, 0.0), math.pi, where(isnan(x), x, 0.0))


@composite()
def isreal(x: TensorLike) -> Any:
    """True where the imaginary part is 0. Takes a tensor of any shape; the result is bool."""
    if is_complex(x):
        return equal(x.imag, 0.0)
    return logical_or(equal(x, x), isnan(x))
