"""Trees of lists, tuples and dictionaries, such as arguments and results of functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from polyhal.complex_tensor import ComplexTensor, paired
from polyhal.tensor import Tensor


@dataclass(frozen=True, slots=True)
class ComplexParts:
    """Placeholder for the parts of a complex tensor in a tree whose leaves are not tensors."""

    real: Any
    imag: Any


def map_tree(value: Any, function: Callable[[Any], Any]) -> Any:
    """Return `value` with `function` applied to every leaf, in order.

    Lists, tuples, named tuples, dictionaries and complex tensors are inner nodes; everything else is a leaf.
    """
    kind = type(value)
    if kind in (list, tuple):
        return kind(map_tree(x, function) for x in value)
    if hasattr(value, "_fields"):
        return kind(*(map_tree(x, function) for x in value))
    if kind is dict:
        return {k: map_tree(x, function) for k, x in value.items()}
    if isinstance(value, (ComplexTensor, ComplexParts)):
        parts = map_tree(value.real, function), map_tree(value.imag, function)
        return paired(*parts) if all(isinstance(x, Tensor) for x in parts) else ComplexParts(*parts)
    return function(value)
