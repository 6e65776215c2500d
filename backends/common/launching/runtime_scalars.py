"""Live numbers among the arguments of recorded launches, and who has to be told when one is another than before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from polyhal.hal.capture.runtime_scalars import RuntimeScalar, ScalarElement

T = TypeVar("T")


class Numbers(Generic[T]):
    """Live numbers with their followers. Numbers that one function computes together are looked at together."""

    def __init__(self) -> None:
        self._sources: dict[int, _Source[T]] = {}

    def follow(self, live: RuntimeScalar, follower: T) -> None:
        """Have `changed` give `follower` whenever `live` has another value."""
        if isinstance(live, ScalarElement):
            self._add(live.derivation, live.derivation.results, live.index, follower)
        else:
            self._add(live, lambda: (live.value,), 0, follower)

    def _add(self, origin: object, look: Callable[[], Sequence[Any]], place: int, follower: T) -> None:
        source = self._sources.get(id(origin))
        if source is None:
            source = self._sources[id(origin)] = _Source(origin, look)
        source.followers.setdefault(place, []).append(follower)

    def __iter__(self) -> Iterator[T]:
        """All followers."""
        return (f for source in self._sources.values() for found in source.followers.values() for f in found)

    def changed(self) -> Iterator[tuple[Any, Sequence[T]]]:
        """Each number that is another than at the last call, with its followers; at first all of them."""
        for source in self._sources.values():
            now, last = source.look(), source.last
            if now is last:
                continue
            source.last = now
            for place, followers in source.followers.items():
                if last is None or now[place] != last[place]:
                    yield now[place], followers


@dataclass(slots=True)
class _Source(Generic[T]):
    """What computes some numbers, which `look` gives, and their followers by place."""

    kept: object
    """So that its identity stays its own."""
    look: Callable[[], Sequence[Any]]
    last: Sequence[Any] | None = None
    followers: dict[int, list[T]] = field(default_factory=dict)
