"""What a captured function returns: a pattern of lists, tuples and dictionaries that each run fills with new tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.hal.captured import Pending
from polyhal.hal.live import Live
from polyhal.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Place:
    """Where a result goes."""

    index: int


def pattern(value: Any, add: Callable[[Tensor], int], arguments: Collection[int] = ()) -> Any:
    """`value` with the tensors that a run makes replaced by places: their numbers, which `add` gives them.

    `arguments` are the buffers of what is passed with each run; other tensors that have memory stay as they are.
    """
    if isinstance(value, Tensor):
        buffer: Any = value.buffer
        if not isinstance(buffer, Pending) and id(buffer) not in arguments:
            return value
        return Place(add(value))
    kind = type(value)
    if kind in (list, tuple):
        return kind(pattern(x, add, arguments) for x in value)
    if hasattr(value, "_fields"):
        return kind(*(pattern(x, add, arguments) for x in value))
    if kind is dict:
        return {k: pattern(x, add, arguments) for k, x in value.items()}
    return value


def filled(found: Any, results: Sequence[Tensor]) -> Any:
    """What a run returns."""
    kind = type(found)
    if kind is Place:
        return results[found.index]
    if isinstance(found, Live):
        return found.value
    if kind in (list, tuple):
        return kind(filled(x, results) for x in found)
    if hasattr(found, "_fields"):
        return kind(*(filled(x, results) for x in found))
    if kind is dict:
        return {k: filled(x, results) for k, x in found.items()}
    return found
