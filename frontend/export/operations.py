"""Arithmetic on the numbers of a program: the names that every runtime implements.

Numbers are Python's: integers of any size, doubles and booleans. The first names are functions of Python's module `operator`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from polyhal.hal.core.execution.runtime_scalars import (
    OPERATIONS as ARITHMETIC,
)
from polyhal.hal.core.execution.runtime_scalars import (
    DerivedScalar,
    RuntimeScalar,
    current_values,
)
from polyhal.hal.ops.optim.rule_program import HOST

_SYNONYMS = {"subtract": "sub", "multiply": "mul", "divide": "truediv", "negative": "neg"}
_OWN = ("expm1", "log", "sqrt", "sign", "greater", "less", "not_equal", "maximum", "minimum", "where")
_CONVERSIONS: dict[str, Callable[[Any], Any]] = {"int": int, "float": float, "bool": bool}

_OPERANDS = {
    **dict.fromkeys(("neg", "pos", "abs", "expm1", "log", "sqrt", "sign", *_CONVERSIONS), 1),
    "where": 3,
}

OPERATIONS: dict[str, Callable[..., Any]] = {**ARITHMETIC, **{name: HOST[name] for name in _OWN}, **_CONVERSIONS}
"""Functions by name. `where(condition, x, y)` chooses; the others have the names of functions of one or two numbers."""


def operand_count(name: str) -> int:
    """Return how many operands an operation has."""
    return _OPERANDS.get(name, 2)


def operation(name: str, *operands: Any) -> Any:
    """Return the number that an operation computes: a runtime scalar if an operand is one, else a plain number."""
    function = OPERATIONS[name]
    if not any(isinstance(x, RuntimeScalar) for x in operands):
        return function(*operands)
    return DerivedScalar(lambda: function(*current_values(operands)), name, operands)


def _correction(beta: Any, t: Any) -> Any:
    return operation("sub", 1, operation("pow", beta, t))


SYMBOLIC: Mapping[str, Callable[..., Any]] = {
    **{name: lambda *xs, name=name: operation(_SYNONYMS.get(name, name), *xs) for name in HOST},
    "correction": _correction,
}
"""The functions of update rules (`rule_program.HOST`) on runtime scalars, as operations."""
