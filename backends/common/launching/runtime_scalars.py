"""Live numbers among the arguments of recorded launches, and their followers, to update after a change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar, ScalarElement

T = TypeVar("T")


class Numbers(Generic[T]):
    """Live numbers with their followers. Numbers computed by one function are compared at once."""

    def __init__(self) -> None:
        self._sources: dict[int, _Source[T]] = {}

    def follow(self, live: RuntimeScalar, follower: T) -> None:
        """Register `follower`, which `changed` yields when the value of `live` changes."""
        if isinstance(live, ScalarElement):
            self._add(live.derivation, live.derivation.results, live.index, follower)
        else:
            self._add(live, lambda: (live.value,), 0, follower)

    def _add(self, origin: object, look: Callable[[], Sequence[Any]], place: int, follower: T) -> None:
        source = self._sources.get(id(origin))
        if source is None:
            source = self._sources[id(origin)] = _Source(origin, look)
        source.followers.setdefault(place, []).append(follower)

    def __bool__(self) -> bool:
        return bool(self._sources)

    def __iter__(self) -> Iterator[T]:
        """Iterate over all followers."""
        return (f for source in self._sources.values() for found in source.followers.values() for f in found)

    def changed(self) -> Iterator[tuple[Any, Sequence[T]]]:
        """Yield each number that has changed since the last call, with its followers; at the first call, all numbers.

        A caller that stops before the end, because it cannot use a number, gets the changes again at its next call.
        """
        seen: list[tuple[_Source[T], Sequence[Any]]] = []
        for source in self._sources.values():
            now, last = source.look(), source.last
            if now is last:
                continue
            seen.append((source, now))
            for place, followers in source.followers.items():
                if last is None or now[place] != last[place]:
                    yield now[place], followers
        for source, now in seen:
            source.last = now


@dataclass(slots=True)
class _Source(Generic[T]):
    """A source of numbers, read by `look`, with the followers of each by index."""

    kept: object
    """Source object, kept alive so that its `id` stays unique."""
    look: Callable[[], Sequence[Any]]
    last: Sequence[Any] | None = None
    followers: dict[int, list[T]] = field(default_factory=dict)
