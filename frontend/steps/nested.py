"""Lists, tuples and dictionaries in each other, in which tensors, numbers and other things lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """`value` with everything in it replaced, in order; lists, tuples, named tuples and dictionaries keep their form."""
    kind = type(value)
    if kind in (list, tuple):
        return kind(mapped(x, function) for x in value)
    if hasattr(value, "_fields"):
        return kind(*(mapped(x, function) for x in value))
    if kind is dict:
        return {k: mapped(x, function) for k, x in value.items()}
    return function(value)
