"""Trees of arguments and results of captured functions: sequences and mappings, and the nodes that a frontend adds."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple


class NodeKind(NamedTuple):
    """Functions that flatten and rebuild the inner nodes of one kind."""

    children: Callable[[Any], Iterable[Any]]
    keys: Callable[[Any], Hashable]
    """Number of children, or their keys."""
    rebuilt: Callable[[Any, list[Any]], Any]
    """Returns a copy of a node with other children."""


def _rebuilt_mapping(value: Any, children: list[Any]) -> Any:
    out = copy.copy(value)
    for key, child in zip(value, children, strict=True):
        out[key] = child  # `update` of some classes refuses
    return out


_SEQUENCE = NodeKind(lambda x: x, len, lambda x, children: type(x)(children))
_NAMED_TUPLE = NodeKind(lambda x: x, len, lambda x, children: type(x)(*children))
_DICT = NodeKind(lambda x: x.values(), tuple, lambda x, children: dict(zip(x, children, strict=True)))
_MAPPING = NodeKind(lambda x: x.values(), tuple, _rebuilt_mapping)

_MOST_TYPES = 1024


class _Kinds(dict[type, NodeKind | None]):
    """The kinds of nodes of the types met so far."""

    def __init__(self, kind_of: Callable[[type], NodeKind | None]) -> None:
        super().__init__()
        self._kind_of = kind_of

    def __missing__(self, kind: type) -> NodeKind | None:
        if len(self) >= _MOST_TYPES:
            self.clear()
        found = self[kind] = self._kind_of(kind)
        return found


class Tree:
    """Inner nodes of trees: lists, tuples, named tuples and mappings, with their subclasses. Other objects are leaves."""

    def __init__(self) -> None:
        self.kinds: Mapping[type, NodeKind | None] = _Kinds(self.kind_of)
        """Kinds of inner nodes by type; None for leaves."""

    def kind_of(self, kind: type) -> NodeKind | None:
        """Return the kind of inner nodes of a type; None for leaves. A frontend with other nodes overrides it."""
        if issubclass(kind, (list, tuple)):
            return _NAMED_TUPLE if hasattr(kind, "_fields") else _SEQUENCE
        if issubclass(kind, MutableMapping):
            return _DICT if kind is dict else _MAPPING
        return None

    def map(self, value: Any, function: Callable[[Any], Any]) -> Any:
        """Return a new tree with `function` applied to every leaf, in order."""
        node = self.kinds[type(value)]
        if node is None:
            return function(value)
        return node.rebuilt(value, [self.map(x, function) for x in node.children(value)])

    def replaced(self, value: Any, function: Callable[[Any], Any]) -> Any:
        """Return the tree with `function` applied to every leaf, in order. Nodes with unchanged children are reused."""
        node = self.kinds[type(value)]
        if node is None:
            return function(value)
        children = list(node.children(value))
        mapped = [self.replaced(x, function) for x in children]
        unchanged = all(new is old for new, old in zip(mapped, children, strict=True))
        return value if unchanged else node.rebuilt(value, mapped)

    def leaves(self, value: Any) -> Iterator[Any]:
        """Iterate over the leaves, in order."""
        node = self.kinds[type(value)]
        if node is None:
            yield value
        else:
            for child in node.children(value):
                yield from self.leaves(child)
