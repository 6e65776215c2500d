"""What Python does before each replay of a captured step, in the order in which the step asked for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyhal.hal.capture.runtime_scalars import RandomStream, RuntimeScalar
from polyhal.hal.dispatch import RandomSource


class ReplayLog:
    """Collects actions: refreshing runtime scalars, drawing random numbers, and what the program registers."""

    def __init__(self) -> None:
        self.actions: list[Callable[[], object]] = []
        self._streams: dict[int, RandomStream] = {}

    def scalar(self, compute: Callable[[], Any], name: str, increment: int) -> RuntimeScalar:
        """A runtime scalar that is refreshed before each replay."""
        scalar = RuntimeScalar(compute, name, increment)
        self.actions.append(scalar.refresh)
        return scalar

    def random(self, source: RandomSource, count: int) -> tuple[RuntimeScalar, RuntimeScalar]:
        """Seed and offset of `count` words that each replay draws from `source`."""
        stream = self._streams.get(id(source))
        if stream is None:
            stream = self._streams[id(source)] = RandomStream(source)
            self.actions.append(stream.draw)
        return stream.reserve(count)
