"""Trees of lists, tuples and dictionaries, such as arguments and results of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def map_tree(value: Any, function: Callable[[Any], Any]) -> Any:
    """Return `value` with `function` applied to every leaf, in order.

    Lists, tuples, named tuples and dictionaries are inner nodes; everything else is a leaf.
    """
    kind = type(value)
    if kind in (list, tuple):
        return kind(map_tree(x, function) for x in value)
    if hasattr(value, "_fields"):
        return kind(*(map_tree(x, function) for x in value))
    if kind is dict:
        return {k: map_tree(x, function) for k, x in value.items()}
    return function(value)
