"""What a captured function returns: a pattern of lists, tuples and dictionaries that each run fills with new tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.hal.capture.fake_buffer import FakeBuffer
from polyhal.hal.capture.runtime_scalars import RuntimeScalar
from polyhal.steps.nested import mapped
from polyhal.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Place:
    """Where a result goes."""

    index: int


def pattern(value: Any, add: Callable[[Tensor], int], arguments: Collection[int] = ()) -> Any:
    """`value` with the tensors that a run makes replaced by places: their numbers, which `add` gives them.

    `arguments` are the buffers of what is passed with each run; other tensors that have memory stay as they are.
    """

    def leaf(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        buffer: Any = x.buffer
        return Place(add(x)) if isinstance(buffer, FakeBuffer) or id(buffer) in arguments else x

    return mapped(value, leaf)


def filled(found: Any, results: Sequence[Tensor]) -> Any:
    """What a run returns."""
    if type(found) is Place:  # most steps return one tensor
        return results[found.index]

    def leaf(x: Any) -> Any:
        if type(x) is Place:
            return results[x.index]
        return x.value if isinstance(x, RuntimeScalar) else x

    return mapped(found, leaf)
