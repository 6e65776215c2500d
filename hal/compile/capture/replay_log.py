"""Actions of Python before each replay of a captured step, in the order of their recording."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import length_hint
from typing import Any

from polyhal.hal.core.dispatch import RandomSource
from polyhal.hal.core.execution.runtime_scalars import RandomStream, RuntimeScalar

RECORDED_SEED = -1
"""Seed of states that are positions in a recording."""


class PathChangedError(Exception):
    """A value on which Python branched has changed: a run cannot follow the recorded path, and has had no effect."""


@dataclass(frozen=True, slots=True)
class UndoableAction:
    """An action before each replay, and its reversal after a replay that fails with an error of type `error`."""

    action: Callable[[], object]
    undo: Callable[[], object]
    error: type[BaseException] = BaseException

    def __call__(self) -> object:
        return self.action()


def replay(actions: Sequence[Callable[[], object]], run: Callable[[], None]) -> None:
    """Call the actions and `run`. If a call fails, the earlier actions are reversed, last first."""
    remaining = iter(actions)
    try:
        for action in remaining:
            action()
        run()
    except BaseException as error:
        for action in reversed(actions[: len(actions) - length_hint(remaining)]):
            if isinstance(action, UndoableAction) and isinstance(error, action.error):
                action.undo()
        raise


class ReplayLog:
    """Collects actions: refreshing runtime scalars, drawing random numbers, and actions that the program registers."""

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
        return self.stream(source).reserve(count)

    def look_ahead(self) -> None:
        """Give the random numbers of the step the values that a run would draw now."""
        for stream in self._streams.values():
            stream.look_ahead()

    def stream(self, source: RandomSource) -> RandomStream:
        """Return the stream of the words that each replay draws from `source`."""
        stream = self._streams.get(id(source))
        if stream is None:
            stream = self._streams[id(source)] = RandomStream(source)
            self.actions.append(UndoableAction(stream.draw, stream.take_back, PathChangedError))
        return stream
