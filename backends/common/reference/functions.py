"""The functions of the contract, required and optional, by name, for `unary`, `binary` and `reduce`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyhal.hal.ops.pointwise.exponential import pow_

Function = Callable[..., Any]


def _quiet(function: Function) -> Function:
    """Suppress NumPy's warnings: on a device, NaN and infinity are values, not errors."""

    def run(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*args)

    return run


def _divide(a: np.ndarray, b: np.ndarray) -> Any:
    """Divide as C does: integers round towards zero."""
    if a.dtype.kind == "f":
        return a / b
    quotient = np.floor_divide(a, b)
    if a.dtype.kind == "u":
        return quotient
    # Round up by one if the floor is negative and inexact.
    return quotient + ((quotient < 0) & (quotient * b != a)).astype(a.dtype)


def _not(x: np.ndarray) -> Any:
    """Negate bool logically and integers bitwise."""
    return np.logical_not(x) if x.dtype.kind == "b" else np.invert(x)


def _sign(x: np.ndarray) -> Any:
    """Return the sign of numbers; for bool, the value itself."""
    return x if x.dtype.kind == "b" else np.sign(x)


UNARY: dict[str, Function] = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "floor": np.floor,
    "neg": np.negative,
    "not": _not,
    "abs": np.abs,
    "sign": _sign,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.round,
    "square": np.square,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
}

BINARY: dict[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "max": np.maximum,
    "lt": np.less,
    "eq": np.equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "min": np.minimum,
    "atan2": np.arctan2,
    "pow": pow_.op.reference,
    "remainder": np.remainder,
    "fmod": np.fmod,
    "floor_divide": np.floor_divide,
    "not_equal": np.not_equal,
    "greater": np.greater,
    "less_equal": np.less_equal,
    "greater_equal": np.greater_equal,
}

REDUCE: dict[str, Function] = {
    "sum": lambda x: x.sum(-1),
    "max": lambda x: x.max(-1),
    "prod": lambda x: x.prod(-1, dtype=np.float64 if x.dtype == np.float32 else None),
}

for _table in (UNARY, BINARY, REDUCE):
    for _name, _function in _table.items():
        _table[_name] = _quiet(_function)
