"""A cache of bounded size, for what is recorded or compiled per kind of call."""

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
        """The value of a key, which is now the most recently used one. None if there is none."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def add(self, key: K, value: V) -> V:
        """Keep a value, as the most recently used one, and return it."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._size:
            self._values.popitem(last=False)
        return value

    def clear(self) -> None:
        """Keep nothing."""
        self._values.clear()

    @property
    def is_full(self) -> bool:
        """Whether a value of another key would evict one."""
        return len(self._values) >= self._size

    def __iter__(self) -> Iterator[K]:
        """The keys, that of the least recently used value first."""
        return iter(self._values)

    def values(self) -> Iterator[V]:
        """The values, the least recently used one first."""
        return iter(self._values.values())
