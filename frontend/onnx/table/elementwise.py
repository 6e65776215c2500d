"""Arithmetic and elementary functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import polyhal as ph
from polyhal.onnx.registration import Value, operator
from polyhal.tensor import Tensor

_UNARY: dict[str, Callable[[Tensor], Any]] = {
    "Abs": ph.abs,
    "Acos": ph.acos,
    "Acosh": ph.acosh,
    "Asin": ph.asin,
    "Asinh": ph.asinh,
    "Atan": ph.atan,
    "Atanh": ph.atanh,
    "BitwiseNot": ph.bitwise_invert,
    "Ceil": ph.ceil,
    "Cos": ph.cos,
    "Cosh": ph.cosh,
    "Erf": ph.erf,
    "Exp": ph.exp,
    "Floor": ph.floor,
    "Log": ph.log,
    "Neg": ph.neg,
    "Not": ph.logical_not,
    "Reciprocal": ph.reciprocal,
    "Round": ph.round,
    "Sign": ph.sign,
    "Sin": ph.sin,
    "Sinh": ph.sinh,
    "Sqrt": ph.sqrt,
    "Tan": ph.tan,
    "Tanh": ph.tanh,
}
for _name, _function in _UNARY.items():
    operator(_name)(lambda X, _f=_function: _f(X))  # noqa: N803

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": ph.add,
    "Sub": ph.sub,
    "Mul": ph.mul,
    "And": ph.logical_and,
    "Or": ph.logical_or,
    "Xor": ph.logical_xor,
    "BitwiseAnd": ph.bitwise_and,
    "BitwiseOr": ph.bitwise_or,
    "BitwiseXor": ph.bitwise_xor,
}
for _name, _operation in _BINARY.items():
    operator(_name, numbers=True)(lambda A, B, _f=_operation: _f(A, B))  # noqa: N803


@operator("Div", numbers=True)
def div(a: Value, b: Value) -> Any:
    tensor = a if isinstance(a, Tensor) else b
    return ph.div(a, b) if tensor.dtype.is_floating_point else ph.truncating_divide(a, b)


@operator("Pow", numbers=True)
def pow_(x: Value, y: Value) -> Any:
    if isinstance(x, Tensor) and isinstance(y, Tensor) and not x.dtype.is_floating_point and y.dtype.is_floating_point:
        return ph.trunc(ph.pow(x.to(y.dtype), y)).to(x.dtype)
    if isinstance(x, Tensor) and not x.dtype.is_floating_point and isinstance(y, float):
        return ph.trunc(ph.pow(x.to(ph.float32), y)).to(x.dtype)
    return ph.pow(x, y)


@operator("Mod", numbers=True)
def mod(a: Value, b: Value, *, fmod: int = 0) -> Any:
    return ph.fmod(a, b) if fmod else ph.remainder(a, b)


@operator("BitShift", numbers=True)
def bit_shift(x: Value, y: Value, *, direction: str) -> Any:
    return ph.bitwise_left_shift(x, y) if direction == "LEFT" else ph.bitwise_right_shift(x, y)


@operator("Max", numbers=True)
def max_(*xs: Value) -> Any:
    return reduce(_ordered(ph.maximum), xs)


@operator("Min", numbers=True)
def min_(*xs: Value) -> Any:
    return reduce(_ordered(ph.minimum), xs)


@operator("Sum", numbers=True)
def sum_(*xs: Value) -> Any:
    return reduce(ph.add, xs)


@operator("Mean", numbers=True)
def mean(*xs: Value) -> Any:
    return ph.div(reduce(ph.add, xs), len(xs)) if len(xs) > 1 else xs[0]


def _ordered(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a symmetric function whose first operand is a tensor."""
    return lambda a, b: function(a, b) if isinstance(a, Tensor) else function(b, a)
