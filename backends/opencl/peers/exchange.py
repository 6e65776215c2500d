"""Exchanges between OpenCL devices: kernels that write to each other's windows (see shaders/opencl/collective/exchange.cl).

The host starts them and waits for nothing. They keep to the order in which they were started, whatever streams they run on.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyopencl as cl

from polyhal.backends.opencl.lowering.collective.exchange import NOTHING, VECTOR, Exchange, Geometry, build
from polyhal.hal.layout import Ref
from polyhal.hal.settings import env

if TYPE_CHECKING:
    from polyhal.backends.opencl.device_runtime import DeviceRuntime
    from polyhal.backends.opencl.peers.windows import Windows
    from polyhal.backends.opencl.queues import CommandQueue
    from polyhal.hal.protocol import Launch

_KEPT_LAUNCHES = 512
_FOR_EVER = 1e9
_RENDEZVOUS_FROM = 1 << 20
"""Bytes. Before longer ones beside other work, a single work-group waits for other processes: many would take compute units."""


class Exchanger:
    """Carries out exchanges among members with windows. Calls of several threads follow one another."""

    def __init__(
        self, runtimes: Sequence[DeviceRuntime], windows: Windows, geometry: Geometry, first: int = 0
    ) -> None:
        """`runtimes` are the members of this process, which follow member `first`, and `windows` what each knows of all."""
        self._runtimes = runtimes
        self._windows = windows
        self._geometry = geometry
        self._first = first
        self._members = len(windows[0])
        self._launches: dict[object, Launch] = {}
        self.is_fast = False
        """See `WindowCommunicator.is_fast`."""
        self._last: list[tuple[CommandQueue, cl.Event] | None] = [None] * len(runtimes)
        """The end of the last exchange on each device, and its queue."""
        self._lock = threading.Lock()

    def run(
        self,
        exchanges: Sequence[Exchange],
        sources: Sequence[Ref],
        targets: Sequence[Ref],
        *,
        trial_seconds: float | None = None,
    ) -> list[cl.Event]:
        """Start what each member of this process does, on the thread's streams. Returns the end of each.

        Sources and targets have one dtype. If the others do not take part within POLYHAL_COLLECTIVE_TIMEOUT, the device gives
        up, and whatever follows on it raises; with `trial_seconds`, the result is wrong after so many. Raises pyopencl.Error.
        """
        with self._lock:
            prepared = self.prepare(exchanges, sources, targets, trial_seconds)
            for runtime in self._runtimes:
                runtime.queues.current().make_room(2)
            ends = [
                self._enqueue(i, launches, source, target)
                for i, (launches, source, target) in enumerate(zip(prepared, sources, targets, strict=True))
            ]
            for runtime in self._runtimes:
                runtime.queue.flush()  # those of some devices wait for those of others
        return ends

    def run_member(self, i: int, exchange: Exchange, source: Ref, target: Ref) -> None:
        """Start what one member does, on the thread's stream of its device, which does nothing else meanwhile.

        Every other member's has to follow, perhaps by other threads. Raises pyopencl.Error.
        """
        with self._lock:
            launch = self._launch(i, exchange, source, target, None)
        self._runtimes[i].queues.current().make_room(1)
        self._enqueue(i, [launch], source, target)

    def prepare(
        self,
        exchanges: Sequence[Exchange],
        sources: Sequence[Ref],
        targets: Sequence[Ref],
        trial_seconds: float | None = None,
    ) -> list[list[Launch]]:
        """Build the launches of each device, so that kernels need not wait for a compiler."""
        prepared = []
        for i, (exchange, source, target) in enumerate(zip(exchanges, sources, targets, strict=True)):
            steps = [exchange]
            others = self._members > len(self._runtimes)
            if others and exchange.longest * source.dtype.itemsize >= _RENDEZVOUS_FROM:
                nothing = (NOTHING,) * self._members
                steps.insert(0, exchange._replace(send=nothing, receive=nothing, longest=1, result_start=0))
            prepared.append([self._launch(i, step, source, target, trial_seconds) for step in steps])
        return prepared

    def _enqueue(self, i: int, launches: Sequence[Launch], source: Ref, target: Ref) -> cl.Event:
        """Enqueue the kernels of one device after the last one, which used the same window."""
        queue = self._runtimes[i].queues.current()
        last = self._last[i]
        if last is not None and last[0] is not queue:
            queue.wait_for(last[1])
        for launch in launches:
            launch(source, target, *self._windows[i])
        end = queue.mark()
        self._last[i] = queue, end
        return end

    def _launch(self, i: int, exchange: Exchange, source: Ref, target: Ref, trial_seconds: float | None) -> Launch:
        size = source.dtype.itemsize
        starts = [r.start for r in (*exchange.send, *exchange.receive)] + [exchange.result_start]
        aligned = not any(n * size % VECTOR for n in (source.offset, target.offset, *starts))
        key = i, exchange, source.dtype, aligned, trial_seconds
        launch = self._launches.get(key)
        if launch is None:
            if len(self._launches) >= _KEPT_LAUNCHES:
                self._launches.clear()
            launch = self._launches[key] = build(
                self._runtimes[i], exchange, self._geometry, self._first + i, source.dtype, aligned=aligned,
                seconds=trial_seconds or env.collective_timeout() or _FOR_EVER, fatal=trial_seconds is None,
            )  # fmt: skip
        return launch
