"""Exchanges between OpenCL devices: kernels that write to each other's windows (see shaders/opencl/collective/exchange.cl).

The host only enqueues them. They run in the order of enqueueing, whatever their streams.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyopencl as cl

from polyhal.backends.opencl_c.lowering.collective.exchange import NOTHING, VECTOR, Exchange, Geometry, build
from polyhal.hal.core.settings import env
from polyhal.hal.layout import Ref

if TYPE_CHECKING:
    from polyhal.backends.opencl.device_runtime import DeviceRuntime
    from polyhal.backends.opencl.peers.windows import Windows
    from polyhal.backends.opencl.queues import CommandQueue
    from polyhal.hal.protocol import Launch

_KEPT_LAUNCHES = 512
_NO_TIMEOUT = 1e9
_RENDEZVOUS_FROM = 1 << 20
"""Minimum bytes of an overlapped exchange with other processes that begins with a rendezvous.

A single work-group waits in the rendezvous: many waiting work-groups would occupy compute units.
"""


class Exchanger:
    """Runs exchanges among participants through windows. Calls from several threads are serialized."""

    def __init__(self, runtimes: Sequence[DeviceRuntime], windows: Windows, geometry: Geometry, first: int = 0) -> None:
        """`runtimes` are this process's participants, numbered from `first`; `windows` has each one's view of all."""
        self._runtimes = runtimes
        self._windows = windows
        self._geometry = geometry
        self._first = first
        self._members = len(windows[0])
        self._launches: dict[object, Launch] = {}
        self.is_fast = False
        """See `WindowCommunicator.is_fast`."""
        self._last: list[tuple[CommandQueue, cl.Event] | None] = [None] * len(runtimes)
        """Event and queue of the last exchange on each device."""
        self._lock = threading.Lock()

    def run(
        self,
        exchanges: Sequence[Exchange],
        sources: Sequence[Ref],
        targets: Sequence[Ref],
        *,
        trial_seconds: float | None = None,
    ) -> list[cl.Event]:
        """Enqueue the exchange of each participant of this process on the thread's streams.

        Returns their completion events.

        Sources and targets have one dtype. If other participants are missing after POLYHAL_COLLECTIVE_TIMEOUT, the
        device aborts and later work on it raises; with `trial_seconds`, the result is wrong after that time. Raises
        pyopencl.Error.
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
                runtime.queue.flush()  # kernels on one device wait for kernels on others
        return ends

    def run_member(self, i: int, exchange: Exchange, source: Ref, target: Ref) -> None:
        """Enqueue one participant's exchange on the compute stream of its device, with no overlapping work.

        The exchanges of all other participants must be enqueued too, possibly by other threads. Raises pyopencl.Error.
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
        """Build the launches of each device, so that no running kernel waits for another device's compiler."""
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
        """Enqueue the kernels of one device after its last exchange, which used the same window."""
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
                self._runtimes[i],
                exchange,
                self._geometry,
                self._first + i,
                source.dtype,
                aligned=aligned,
                seconds=trial_seconds or env.collective_timeout() or _NO_TIMEOUT,
                fatal=trial_seconds is None,
            )
        return launch
