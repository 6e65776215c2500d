"""Comparisons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polyhal as ph
from polyhal.onnx.registration import Value, operator
from polyhal.tensor import Tensor

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "Equal": ph.eq,
    "Greater": ph.gt,
    "GreaterOrEqual": ph.ge,
    "Less": ph.lt,
    "LessOrEqual": ph.le,
}
for _name, _function in _COMPARISONS.items():
    operator(_name)(lambda A, B, _f=_function: _f(A, B))  # noqa: N803


@operator("IsNaN")
def is_nan(x: Tensor) -> Any:
    return ph.isnan(x)


@operator("IsInf")
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    positive, negative = ph.isposinf(x), ph.isneginf(x)
    found = ph.zeros_like(positive)
    found = ph.logical_or(found, positive) if detect_positive else found
    return ph.logical_or(found, negative) if detect_negative else found


@operator("Where", numbers=True)
def where(condition: Tensor, x: Value, y: Value) -> Any:
    return ph.where(condition, x, y)
