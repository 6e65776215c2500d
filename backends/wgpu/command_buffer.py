"""Command buffers: pipelines, bind groups and parameters that are prepared once and encoded again for each submission.

The API has no reusable command buffers: each launch of a submission takes four calls of the native library, and its
encoder checks each. Launches that did not change in two submissions are therefore encoded ahead for the next one, while
the device executes the current one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from polyhal.backends.common.launching.launch_recorder import record_launches
from polyhal.backends.common.launching.runtime_scalars import Numbers
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar
from polyhal.hal.layout import Ref
from polyhal.hal.protocol import BindingSlot, RecordedLaunch

if TYPE_CHECKING:
    from polyhal.backends.wgpu.device_runtime import WGPURuntime
    from polyhal.backends.wgpu.launch import DispatchLaunch
    from polyhal.backends.wgpu.native import Dispatch

_MIN_RUN = 8
"""Minimum number of adjacent launches that are encoded ahead. Each run is a submission of its own."""

DispatchCall = tuple["DispatchLaunch", tuple[Any, ...]]
"""A launch and its arguments."""


def record(runtime: WGPURuntime, calls: Sequence[Callable[[], None]]) -> WGPUCommandBuffer:
    """Record the launches of `calls`."""
    return WGPUCommandBuffer(runtime, *record_launches(runtime, calls))


class WGPUCommandBuffer:
    """A list of dispatches that each submission encodes. Implements `polyhal.hal.protocol.CommandBuffer`."""

    def __init__(
        self,
        runtime: WGPURuntime,
        launches: Sequence[DispatchCall],
        origins: Sequence[int],
        kept: Sequence[object] = (),
    ) -> None:
        """Index the launches. `origins` holds, for each launch, the index of its call; `kept` is kept alive with the buffer."""
        self._kept = kept
        self._encoder = runtime.encoder
        self.launches = tuple(RecordedLaunch(i, b.name) for i, (b, _) in zip(origins, launches, strict=True))
        self._users: dict[BindingSlot, list[tuple[int, int, Ref]]] = {}
        """Launch, argument index and reference of each use, by slot."""
        self._numbers: Numbers[tuple[int, int]] = Numbers()
        self._current = [(launch, list(args)) for launch, args in launches]
        self.dispatches: list[Dispatch | None] = []
        self._ahead: list[tuple[range, Any]] = []
        """Runs of launches, and their command buffers for the next submission."""
        self._last_changed: set[int] = set()
        for i, (launch, args) in enumerate(launches):
            bound = [
                (place, x) for place, x in enumerate(args) if isinstance(x, Ref) and isinstance(x.handle, BindingSlot)
            ]
            for place, ref in bound:
                self._users.setdefault(ref.handle, []).append((i, place, ref))
            live = [(place, x) for place, x in enumerate(args) if isinstance(x, RuntimeScalar)]
            for place, x in live:
                self._numbers.follow(x, (i, place))
            # Bindings and numbers are set at the first submission, because numbers may not exist yet: an optimizer that
            # is recorded in its first step cannot correct for step 0.
            self.dispatches.append(None if bound or live else launch.prepare(self._current[i][1]))

    def submit(self, rebound: Collection[BindingSlot]) -> None:
        """Prepare launches with changed arguments, then encode and submit all launches."""
        changed: set[int] = set()
        for slot in rebound:
            for i, place, ref in self._users.get(slot, ()):
                self._current[i][1][place] = Ref(slot.handle, ref.spec, slot.offset + ref.offset)
                changed.add(i)
        for value, followers in self._numbers.changed():
            for i, place in followers:
                self._current[i][1][place] = value
                changed.add(i)
        for i in changed:
            launch, args = self._current[i]
            self.dispatches[i] = launch.prepare(args)
        self._encode_and_submit(changed)
        self._encode_ahead(changed)

    def _encode_and_submit(self, changed: set[int]) -> None:
        """Submit all launches. A command buffer that was encoded ahead is valid unless a launch in it is in `changed`."""
        encoder, ahead, place = self._encoder, self._ahead, 0
        self._ahead = []
        dispatches = cast("list[Dispatch]", self.dispatches)  # by now all are prepared
        with encoder.lock:
            for run, buffer in ahead if encoder.timestamps is None else ():
                if changed.isdisjoint(run):
                    encoder.dispatch_all(dispatches[place : run.start])
                    encoder.submit(buffer)
                    place = run.stop
            encoder.dispatch_all(dispatches[place:])
            encoder.flush()

    def _encode_ahead(self, changed: set[int]) -> None:
        """Encode runs of launches for the next submission, if the same launches changed before the last two."""
        repeated, self._last_changed = changed == self._last_changed, changed
        if repeated:
            dispatches = cast("list[Dispatch]", self.dispatches)
            fresh = changed.union(i for i, (pipeline, *_) in enumerate(dispatches) if not pipeline.has_immediates)
            ends = sorted((-1, *fresh, len(dispatches)))
            runs = [range(a + 1, b) for a, b in pairwise(ends) if b - a > _MIN_RUN]
            self._ahead = [(run, self._encoder.encode(dispatches[run.start : run.stop])) for run in runs]
