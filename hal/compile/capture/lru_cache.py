"""A cache of bounded size, for recordings and programs per signature."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True)
class _Slot(Generic[V]):
    value: V
    used: int
    """Time of the last use. Noting it hashes the key once, where reordering the keys would hash it twice."""


class LRUCache(Generic[K, V]):
    """At most `size` values by key: if there are more, the least recently used one is evicted."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._slots: dict[K, _Slot[V]] = {}
        self._clock = itertools.count()

    def get(self, key: K) -> V | None:
        """Return the value of a key and mark it as the most recently used one; None if it is not cached."""
        slot = self._slots.get(key)
        if slot is None:
            return None
        slot.used = next(self._clock)
        return slot.value

    def add(self, key: K, value: V) -> V:
        """Store a value as the most recently used one, and return it."""
        self._slots[key] = _Slot(value, next(self._clock))
        if len(self._slots) > self._size:
            del self._slots[next(iter(self))]
        return value

    def clear(self) -> None:
        """Remove all values."""
        self._slots.clear()

    @property
    def is_full(self) -> bool:
        """Return whether adding another key would evict a value."""
        return len(self._slots) >= self._size

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys, least recently used first."""
        return iter(sorted(self._slots, key=lambda key: self._slots[key].used))

    def values(self) -> Iterator[V]:
        """Return the values, least recently used first."""
        return iter([self._slots[key].value for key in self])
