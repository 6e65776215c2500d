"""The tensors that a step reads without being passed them, and whether they require gradients.

A program may freeze a parameter by plain assignment (`weight.requires_grad = False`), which counts nowhere. So a captured step
compares the attribute before each run.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any


class LeafTable:
    """Collects tensors that are read while gradients are enabled."""

    def __init__(self) -> None:
        self._seen: dict[int, weakref.ref[Any]] = {}
        self._excluded: list[Any] = []

    def note(self, inputs: Iterable[Any]) -> None:
        """Note the tensors among the inputs of an op."""
        for x in inputs:
            if hasattr(x, "ref") and x.ref.spec.dtype.is_floating_point and id(x) not in self._seen:
                self._seen[id(x)] = weakref.ref(x, self._forget(id(x)))

    def alive(self) -> list[Any]:
        """Return the tensors that are still alive."""
        return [x for x in (ref() for ref in self._seen.values()) if x is not None]

    def exclude(self, x: Any) -> None:
        """Leave out a tensor that is passed with each run: it is part of the call's signature."""
        self._excluded.append(x)

    def flags(self, made: Iterable[Any]) -> list[tuple[Any, bool]]:
        """The tensors, but for those that the step `made`, with whether they require gradients at its end."""
        others = {id(x) for x in (*made, *self._excluded) if x is not None}
        alive = [x for x in (ref() for ref in self._seen.values()) if x is not None and id(x) not in others]
        self._excluded.clear()
        return [(x, x.requires_grad) for x in alive]

    def _forget(self, identity: int) -> Any:
        """Free an identity when its tensor dies: another tensor may get it."""
        seen = self._seen
        return lambda _: seen.pop(identity, None)
