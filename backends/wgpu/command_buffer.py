"""Launches kept and submitted again: pipelines, bind groups and parameters are made once, and encoded anew for each run.

The API has no command buffers that can be submitted twice. What is left per launch is four calls of the native library.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.launching.runtime_scalars import Numbers
from polyhal.hal.capture.runtime_scalars import RuntimeScalar, current_values
from polyhal.hal.layout import Ref
from polyhal.hal.protocol import BindingSlot, RecordedLaunch

if TYPE_CHECKING:
    from polyhal.backends.wgpu.encoder import Dispatch
    from polyhal.backends.wgpu.launch import KernelLaunch
    from polyhal.backends.wgpu.runtime import Runtime

Arguments = tuple[Any, ...]


class Tape:
    """Takes the launches of one thread while it records; other threads go on launching."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self.launches: list[tuple[KernelLaunch, Arguments]] = []

    def accepts(self) -> bool:
        """Whether the launches of the current thread are recorded."""
        return threading.get_ident() == self._thread

    def add(self, launch: KernelLaunch, args: Arguments) -> None:
        self.launches.append((launch, args))


def record(runtime: Runtime, calls: Sequence[Callable[[], None]]) -> RecordedDispatches:
    """Keep what `calls` launch. Satisfies `polyhal.hal.protocol.SupportsCommandBuffers`."""
    origins: list[int] = []
    tape = runtime.tape = Tape()
    try:
        for number, call in enumerate(calls):
            call()
            origins += [number] * (len(tape.launches) - len(origins))
    finally:
        runtime.tape = None
    return RecordedDispatches(runtime, tape.launches, origins)


class RecordedDispatches:
    """A list of dispatches, made one submission at each replay. Satisfies `polyhal.hal.protocol.CommandBuffer`."""

    def __init__(
        self, runtime: Runtime, launches: Sequence[tuple[KernelLaunch, Arguments]], origins: Sequence[int]
    ) -> None:
        """`origins` says which call each launch comes from."""
        self._recorder = runtime.recorder
        self.launches = tuple(RecordedLaunch(i, b.name) for i, (b, _) in zip(origins, launches, strict=True))
        self._followers: dict[BindingSlot, list[tuple[int, int, Ref]]] = {}
        """Launch, place among its arguments, and the operand there, by what it lies in."""
        self._numbers: Numbers[tuple[int, int]] = Numbers()
        self._kept = [(launch, current_values(args)) for launch, args in launches]
        self.dispatches: list[Dispatch | None] = []
        for i, (launch, args) in enumerate(launches):
            moving = [
                (place, x) for place, x in enumerate(args) if isinstance(x, Ref) and isinstance(x.handle, BindingSlot)
            ]
            for place, ref in moving:
                self._followers.setdefault(ref.handle, []).append((i, place, ref))
            for place, x in enumerate(args):
                if isinstance(x, RuntimeScalar):
                    self._numbers.follow(x, (i, place))
            # Others are made at the first replay, which says where their operands lie.
            self.dispatches.append(None if moving else launch.prepare(self._kept[i][1]))

    def submit(self, rebound: Collection[BindingSlot]) -> None:
        """Submit all launches, after preparing those anew whose arguments changed."""
        changed: set[int] = set()
        for movable in rebound:
            for i, place, ref in self._followers.get(movable, ()):
                self._kept[i][1][place] = Ref(movable.handle, ref.spec, movable.offset + ref.offset)
                changed.add(i)
        for value, followers in self._numbers.changed():
            for i, place in followers:
                self._kept[i][1][place] = value
                changed.add(i)
        for i in changed:
            launch, args = self._kept[i]
            self.dispatches[i] = launch.prepare(args)
        self._recorder.dispatch_all(self.dispatches)  # type: ignore[arg-type]  # by now all are made
        self._recorder.flush()
