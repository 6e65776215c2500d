"""Trees of arguments and results of steps: lists, tuples, mappings and data classes."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any


def children(value: Any) -> list[tuple[Any, Any]] | None:
    """Return keys and children of an inner node; None for a leaf."""
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    if isinstance(value, MutableMapping):
        return list(value.items())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
    return None


def leaves(value: Any) -> Iterator[Any]:
    """Iterate over the leaves of a tree, in order."""
    inner = children(value)
    if inner is None:
        yield value
    else:
        for _, child in inner:
            yield from leaves(child)


def map_leaves(value: Any, function: Callable[[Any], Any]) -> Any:
    """Return the tree with `function` applied to every leaf; nodes with unchanged children are reused."""
    inner = children(value)
    if inner is None:
        return function(value)
    mapped = [(key, map_leaves(child, function)) for key, child in inner]
    if all(new is old for (_, new), (_, old) in zip(mapped, inner, strict=True)):
        return value
    return _rebuilt(value, mapped)


def _rebuilt(value: Any, mapped: list[tuple[Any, Any]]) -> Any:
    """Return a copy of an inner node with other children."""
    if isinstance(value, (list, tuple)):
        made = [child for _, child in mapped]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    out = copy.copy(value)
    for key, child in mapped:
        if isinstance(value, MutableMapping):
            out[key] = child
        else:
            object.__setattr__(out, key, child)
    return out
