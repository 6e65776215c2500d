"""`Methods`, the base class of tensors and traced symbols: ops as methods and operators.

The methods are attached after all families are imported (`hal/ops/__init__.py`), so that a new op becomes a method without
another edit. `methods.pyi` is generated from the declarations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyhal.hal.ops.tensor_like import Numeric


class Methods:
    """Every op whose first input is a tensor, as a method; arithmetic, comparison and bitwise operators."""

    __slots__ = ()
    __hash__ = object.__hash__
    __array_ufunc__ = None  # NumPy arrays on the left defer to our reflected operators

    def __getitem__(self, index: Any) -> Any:
        from polyhal.hal.ops.indexing.brackets import basic_index

        return basic_index(self, index if isinstance(index, tuple) else (index,))


OPERATORS: dict[str, str] = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "pow",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
}
"""Binary operators that also have a reflected form."""

COMPARISONS: dict[str, str] = {
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "eq": "equal",
    "ne": "not_equal",
}

UNARY: dict[str, str] = {"neg": "negative", "pos": "positive", "abs": "abs", "invert": "bitwise_invert"}


def attach(functions: dict[str, Callable[..., Any]], methods: dict[str, Callable[..., Any]]) -> None:
    """Set `methods` and the operators made of `functions` as attributes of `Methods`."""
    for name, function in methods.items():
        setattr(Methods, name, function)
    for operator, name in OPERATORS.items():
        setattr(Methods, f"__{operator}__", functions[name])
        setattr(Methods, f"__r{operator}__", _reflected(functions[name]))
    for operator, name in COMPARISONS.items():
        setattr(Methods, f"__{operator}__", functions[name])
    for operator, name in UNARY.items():
        setattr(Methods, f"__{operator}__", functions[name])


def _reflected(function: Callable[..., Any]) -> Callable[..., Any]:
    def reflected(self: Any, other: Numeric) -> Any:
        return function(other, self)

    return reflected
