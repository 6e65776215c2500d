"""A cache of bounded size, for recordings and programs per signature."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LRUCache(Generic[K, V]):
    """At most `size` values by key: if there are more, the least recently used one is evicted."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return the value of a key and mark it as the most recently used one; None if it is not cached."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def add(self, key: K, value: V) -> V:
        """Store a value as the most recently used one, and return it."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._size:
            self._values.popitem(last=False)
        return value

    def clear(self) -> None:
        """Remove all values."""
        self._values.clear()

    @property
    def is_full(self) -> bool:
        """Return whether adding another key would evict a value."""
        return len(self._values) >= self._size

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys, least recently used first."""
        return iter(self._values)

    def values(self) -> Iterator[V]:
        """Return the values, least recently used first."""
        return iter(self._values.values())
