"""PyTorch's arithmetic with extra arguments, as one or two ops: scaled sums, rounded quotients, bounds, degrees."""

from __future__ import annotations

import math
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.core.dispatch import scalar_dtype
from polyhal.hal.ops.composite import Returns, composite
from polyhal.hal.ops.pointwise.arithmetic import abs_, divide, multiply, subtract
from polyhal.hal.ops.pointwise.arithmetic import add as _add
from polyhal.hal.ops.pointwise.exponential import pow_
from polyhal.hal.ops.pointwise.logic import equal, less_equal, logical_and, logical_or
from polyhal.hal.ops.pointwise.rounding import (
    floor_divide,
    isfinite,
    isnan,
    round_,
    truncated_quotient,
    truncating_divide,
)
from polyhal.hal.ops.pointwise.selection import clip, maximum, minimum, where
from polyhal.hal.ops.reductions.extrema import all_
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _dtype(value: TensorLike | int) -> dtypes.DType:
    return value.dtype if hasattr(value, "dtype") else scalar_dtype(value)


@composite(extends=True)
def add(x: TensorLike | Array | float, y: TensorLike | Array, *, alpha: float = 1) -> Any:
    """Sum `x + alpha * y`. The shapes broadcast.

    >>> polyhal.add(polyhal.tensor([1, 2]), polyhal.tensor([[10], [20]])).tolist()
    [[11, 12], [21, 22]]
    """
    return _add(x, y if alpha == 1 else multiply(y, alpha))


@composite()
def sub(x: TensorLike, y: TensorLike, *, alpha: float = 1) -> Any:
    """`x - alpha * y`. The shapes broadcast."""
    return subtract(x, y if alpha == 1 else multiply(y, alpha))


@composite()
def rsub(x: TensorLike, y: TensorLike, *, alpha: float = 1) -> Any:
    """`y - alpha * x`. The shapes broadcast."""
    return subtract(y, x if alpha == 1 else multiply(x, alpha))


@composite(in_place=True)
def div(x: TensorLike, y: TensorLike, *, rounding_mode: str | None = None) -> Any:
    """`x / y`; with `rounding_mode` "floor" or "trunc" rounded down or towards zero, and integers stay integers.

    Raises ValueError for another mode.
    """
    match rounding_mode:
        case None:
            return divide(x, y)
        case "floor":
            return floor_divide(x, y)
        case "trunc":
            whole = all(_dtype(v).kind != "float" for v in (x, y))
            return truncating_divide(x, y) if whole else truncated_quotient(x, y)
    raise ValueError(f"[div] rounding_mode is {rounding_mode!r}; expected None, 'floor' or 'trunc'")


@composite(in_place=True)
def clamp_min(x: TensorLike, min: TensorLike) -> Any:  # noqa: A002
    """`x`, and `min` where `x` is below it. The shapes broadcast."""
    return maximum(x, min) if _dtype(x).kind == "bool" else clip(x, min, None)


@composite(in_place=True)
def clamp_max(x: TensorLike, max: TensorLike) -> Any:  # noqa: A002
    """`x`, and `max` where `x` is above it. The shapes broadcast."""
    return minimum(x, max) if _dtype(x).kind == "bool" else clip(x, None, max)


@composite(in_place=True)
def deg2rad(x: TensorLike) -> Any:
    """Degrees as radians. Takes a tensor of any shape; integers become float32."""
    return multiply(x, math.pi / 180)


@composite(in_place=True)
def rad2deg(x: TensorLike) -> Any:
    """Radians as degrees. Takes a tensor of any shape; integers become float32."""
    return multiply(x, 180 / math.pi)


@composite(in_place=True)
def ldexp(x: TensorLike, other: TensorLike) -> Any:
    """`x` times 2 to the power `other`, in floating point."""
    return multiply(x, pow_(2.0, other))


@composite(in_place=True)
def float_power(x: Any, exponent: Any) -> Any:
    """`x` to the power `exponent` in float64. Raises UnsupportedDTypeError on a device without float64."""
    base, power = (v.cast(dtype=dtypes.float64) if hasattr(v, "dtype") else float(v) for v in (x, exponent))
    return pow_(base, power)


@composite("special.", "numpy.rint", in_place=True, aten=".default .decimals")
def round(x: TensorLike, decimals: int = 0) -> Any:  # noqa: A001
    """`x` rounded to so many decimals, to tens and hundreds if negative; halves to even.

    Takes a tensor of any shape.

    >>> polyhal.round(polyhal.tensor([0.5, 1.5])).tolist()
    [0.0, 2.0]
    """
    if decimals == 0 or x.dtype.kind != "float":
        return round_(x)
    scale = 10.0 ** abs(decimals)
    return round_(x * scale) / scale if decimals > 0 else round_(x / scale) * scale


@composite(returns=Returns.VIEW)
def positive(x: TensorLike) -> Any:
    """`x` itself, a tensor of any shape."""
    return x


@composite(in_place=True)
def nan_to_num(x: TensorLike, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Any:
    """`x` with NaN and infinities replaced, infinities by the largest and the lowest finite number unless given.

    >>> polyhal.nan_to_num(polyhal.tensor([1.0, polyhal.nan])).tolist()
    [1.0, 0.0]
    """
    if x.dtype.kind != "float":
        return x
    largest = dtypes.finfo(x.dtype).max
    x = where(isnan(x), nan, x)
    x = where(equal(x, math.inf), largest if posinf is None else posinf, x)
    return where(equal(x, -math.inf), -largest if neginf is None else neginf, x)


@composite()
def isclose(x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    """True where `|x - y| <= atol + rtol * |y|`, where both are the same infinity and, with `equal_nan`, both NaN.

    The shapes broadcast, and the result is bool.

    >>> polyhal.isclose(polyhal.tensor([1.0]), polyhal.tensor([1.000001])).tolist()
    [True]
    """
    close = equal(x, y)
    if equal_nan:
        close = logical_or(close, logical_and(isnan(x), isnan(y)))
    if rtol == 0 and atol == 0:
        return close
    floating = any(_dtype(v).kind == "float" for v in (x, y))
    if not floating:
        x, y = (v.cast(dtype=dtypes.int64) if _dtype(v) is dtypes.bool_ else v for v in (x, y))
    distance = abs_(x - y)
    near = less_equal(distance, abs_(y) * rtol + atol)
    return logical_or(close, logical_and(near, isfinite(distance)) if floating else near)


@composite()
def allclose(x: TensorLike, y: TensorLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Return whether all elements are close (see `isclose`), as a Python bool. Waits for the device.

    >>> polyhal.allclose(polyhal.tensor([1.0]), polyhal.tensor([1.000001]))
    True
    """
    return bool(all_(isclose(x, y, rtol, atol, equal_nan)).item())
