"""Sums, products and comparisons of complex numbers, and ops built on them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from polyhal.hal import dtypes
from polyhal.hal.core.dispatch import is_complex
from polyhal.hal.dtypes import as_dtype, component, promote
from polyhal.hal.errors import UnsupportedDTypeError, message
from polyhal.hal.ops.complex_numbers.rules import by_parts, complex_rule, imag, join, real
from polyhal.hal.ops.layout.creation import empty, full
from polyhal.hal.ops.pointwise.arithmetic import (
    abs_,
    add,
    divide,
    multiply,
    negative,
    reciprocal,
    sign,
    square,
    subtract,
)
from polyhal.hal.ops.pointwise.cast import cast, in_dtype
from polyhal.hal.ops.pointwise.logic import (
    equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
)
from polyhal.hal.ops.pointwise.pairs import modulus
from polyhal.hal.ops.pointwise.rounding import isfinite, isinf, isnan, round_
from polyhal.hal.ops.pointwise.scaled_sums import addcdiv, addcmul, lerp
from polyhal.hal.ops.pointwise.selection import maximum, where
from polyhal.hal.ops.pointwise.signs import copysign
from polyhal.hal.ops.tensor_like import TensorLike

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.dtypes import DType

by_parts(negative, round_)


@complex_rule(where)
def _where(cond: TensorLike, x: TensorLike | float, y: TensorLike) -> Any:
    if is_complex(cond):
        cond = not_equal(cond, 0)
    if not is_complex(x) and not is_complex(y):
        return where(cond, x, y)
    return join(where(cond, real(x), real(y)), where(cond, imag(x), imag(y)))


@complex_rule(add)
def _add(x: TensorLike | complex, y: TensorLike | complex | float) -> Any:
    if not is_complex(x):
        return _add(y, x)
    return join(x.real + real(y), x.imag + y.imag if is_complex(y) else x.imag)


@complex_rule(subtract)
def _subtract(x: TensorLike | float, y: TensorLike | complex | float) -> Any:
    if not is_complex(y):
        return join(x.real - y, x.imag)
    return join(real(x) - y.real, x.imag - y.imag if is_complex(x) else -y.imag)


@complex_rule(multiply)
def _multiply(x: TensorLike | complex, y: TensorLike | complex) -> Any:
    if not is_complex(x):
        return join(x * y.real, x * y.imag)
    if not is_complex(y):
        return join(x.real * y, x.imag * y)
    a, b, c, d = x.real, x.imag, y.real, y.imag
    return join(a * c - b * d, a * d + b * c)


@complex_rule(divide)
def _divide(x: Any, y: Any) -> Any:
    """Both parts of the divisor are divided by the larger one first, so that its square neither overflows nor vanishes."""
    if not is_complex(y):
        return join(x.real / y, x.imag / y)
    a, b, c, d = real(x), imag(x), y.real, y.imag
    tensor = hasattr(c, "ref")
    if tensor and hasattr(x, "ref"):  # the quotient of the parts of the divisor is as precise as the result
        c, d = (in_dtype(part, component(promote(x.dtype, y.dtype))) for part in (c, d))
    if not tensor and not y:
        return join(a / 0.0, b / 0.0)
    e, f = _scaled(c, d) if tensor else _scaled_numbers(c, d)
    size = c * e + d * f
    re, im = (a * e + b * f, b * e - a * f) if is_complex(x) else (a * e, -(a * f))
    if tensor:  # a division by 0 divides each part by 0
        zero = equal(size, 0.0)
        re, im = where(zero, a, re), where(zero, b, im)
    return join(re / size, im / size)


def _scaled(c: Any, d: Any) -> tuple[Any, Any]:
    """Return both parts of a divisor divided by the larger one. Of an infinite one, the sign is left."""
    larger = maximum(abs_(c.detach()), abs_(d.detach()))
    infinite = isinf(larger)
    larger = where(equal(larger, 0.0), 1.0, larger)
    e, f = c / larger, d / larger
    return (
        where(logical_and(infinite, equal(f, 0.0)), copysign(1.0, c.detach()), e),
        where(logical_and(infinite, equal(e, 0.0)), copysign(1.0, d.detach()), f),
    )


def _scaled_numbers(c: float, d: float) -> tuple[float, float]:
    """`_scaled` for a number other than 0."""
    if math.isinf(c) != math.isinf(d):
        return (math.copysign(1.0, c), 0.0) if math.isinf(c) else (0.0, math.copysign(1.0, d))
    larger = max(abs(c), abs(d))
    return c / larger, d / larger


@complex_rule(reciprocal)
def _reciprocal(x: TensorLike) -> Any:
    return _divide(1.0, x)


@complex_rule(square)
def _square(x: TensorLike) -> Any:
    a, b = x.real, x.imag
    return join((a - b) * (a + b), a * b * 2.0)


@complex_rule(abs_)
def _abs(x: TensorLike) -> Any:
    return modulus(x.real, x.imag)


@complex_rule(sign)
def _sign(x: TensorLike) -> Any:
    """`x / |x|`, and 0 of 0."""
    size = abs_(x)
    return _divide(x, where(equal(size, 0.0), 1.0, size))


@complex_rule(addcmul)
def _addcmul(x: TensorLike, tensor1: TensorLike, tensor2: TensorLike, *, value: complex) -> Any:
    return x + tensor1 * tensor2 * value


@complex_rule(addcdiv)
def _addcdiv(x: TensorLike, tensor1: TensorLike, tensor2: TensorLike, *, value: complex) -> Any:
    return x + tensor1 / tensor2 * value


@complex_rule(lerp)
def _lerp(x: TensorLike, end: TensorLike, weight: TensorLike) -> Any:
    return x + (end - x) * weight


# --- truth ----------------------------------------------------------------------------------------------------------


@complex_rule(equal)
def _equal(x: TensorLike, y: TensorLike | float) -> Any:
    return logical_and(_part_equal(real(x), real(y)), _part_equal(imag(x), imag(y)))


def _part_equal(x: TensorLike, y: TensorLike | float) -> Any:
    return equal(x, y) if hasattr(x, "ref") or hasattr(y, "ref") else x == y


@complex_rule(not_equal)
def _not_equal(x: TensorLike, y: TensorLike | int) -> Any:
    return logical_not(_equal(x, y))


def _is_nonzero(x: TensorLike) -> Any:
    return logical_or(not_equal(x.real, 0), not_equal(x.imag, 0)) if is_complex(x) else x


def _of_truth(op: Any) -> Any:
    return lambda *operands: op(*map(_is_nonzero, operands))


for _op in (logical_not, logical_and, logical_or, logical_xor):
    complex_rule(_op)(_of_truth(_op))


@complex_rule(isnan)
def _isnan(x: TensorLike) -> Any:
    return logical_or(isnan(x.real), isnan(x.imag))


@complex_rule(isinf)
def _isinf(x: TensorLike) -> Any:
    return logical_or(isinf(x.real), isinf(x.imag))


@complex_rule(isfinite)
def _isfinite(x: TensorLike) -> Any:
    return logical_and(isfinite(x.real), isfinite(x.imag))


# --- dtypes ---------------------------------------------------------------------------------------------------------


@complex_rule(cast)
def _cast(x: TensorLike, *, dtype: DType) -> Any:
    """To bool: whether a number is not 0. Other real dtypes are refused, as in the Array API: the imaginary part would go."""
    dtype = as_dtype(dtype)
    if dtype is dtypes.bool_:
        return _is_nonzero(x)
    if dtype.kind != "complex":
        problem = f"a cast of complex numbers to {dtype.name} drops their imaginary part"
        raise UnsupportedDTypeError(
            message("cast", problem, expected="a complex dtype or bool", fix="cast .real or .abs()")
        )
    part = component(dtype)
    return join(cast(real(x), part), cast(x.imag, part) if is_complex(x) else 0)


@complex_rule(empty)
def _empty(*, shape: tuple[int, ...], dtype: DType, device: Device) -> Any:
    part = component(as_dtype(dtype))
    return join(empty(shape, part, device=device), empty(shape, part, device=device))


@complex_rule(full)
def _full(*, shape: tuple[int, ...], value: complex, dtype: DType, device: Device) -> Any:
    part = component(as_dtype(dtype))
    return join(*(full(shape, v, part, device=device) for v in (real(value), imag(value))))
