"""Trees of arguments and results of steps, in which data classes are nodes."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

from polyhal.hal.compile.capture.tree import NodeKind, Tree


def _fields(value: Any) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(value))


def _children(value: Any) -> Iterator[Any]:
    return (getattr(value, name) for name in _fields(value))


def _rebuilt(value: Any, children: list[Any]) -> Any:
    """Return a copy of a data class with other fields; the object itself if they are the same."""
    if all(new is old for new, old in zip(children, _children(value), strict=True)):
        return value
    out = copy.copy(value)
    for name, child in zip(_fields(value), children, strict=True):
        object.__setattr__(out, name, child)
    return out


_DATA_CLASS = NodeKind(_children, _fields, _rebuilt)


class _StepTree(Tree):
    def kind_of(self, kind: type) -> NodeKind | None:
        return super().kind_of(kind) or (_DATA_CLASS if dataclasses.is_dataclass(kind) else None)


TREE = _StepTree()
