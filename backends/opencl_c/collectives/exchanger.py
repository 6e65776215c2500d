"""Exchanges between devices: kernels that write to each other's windows (see shaders/opencl/collective/exchange.cl).

The host only enqueues them. They run in the order of enqueueing, whatever their streams.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from polyhal.backends.opencl_c.lowering.collective.exchange import NOTHING, VECTOR, Exchange, Geometry, build
from polyhal.hal.core.settings import env
from polyhal.hal.layout import Ref
from polyhal.hal.protocol import BindingSlot

if TYPE_CHECKING:
    from polyhal.backends.opencl_c.collectives.participant import Participant
    from polyhal.backends.opencl_c.collectives.windows import Windows
    from polyhal.hal.protocol import Launch

_KEPT_LAUNCHES = 512
_NO_TIMEOUT = 1e9
_RENDEZVOUS_FROM = 1 << 20
"""Minimum bytes of an exchange with other processes over slow links that begins with a rendezvous.

A single work-group waits in the rendezvous: many waiting work-groups would occupy compute units.
"""


class Exchanger:
    """Runs exchanges among participants through windows. Calls from several threads are serialized."""

    def __init__(self, devices: Sequence[Participant], windows: Windows, geometry: Geometry, first: int = 0) -> None:
        """`devices` are this process's participants, numbered from `first`; `windows` has each one's view of all."""
        self._devices = devices
        self.failures = devices[0].failures
        """Exceptions of the participants' drivers."""
        self.recordable = all(d.recordable for d in devices)
        """See `Participant`."""
        self._windows = windows
        self._geometry = geometry
        self._first = first
        self._members = len(windows[0])
        self._launches: dict[object, Launch] = {}
        self.is_fast = False
        """See `WindowCommunicator.is_fast`."""
        self._last: list[tuple[object, Any] | None] = [None] * len(devices)
        """Stream and end of the last exchange on each device."""
        self._lock = threading.Lock()

    def run(
        self,
        exchanges: Sequence[Exchange],
        sources: Sequence[Ref],
        targets: Sequence[Ref],
        *,
        trial_seconds: float | None = None,
    ) -> list[Any]:
        """Enqueue the exchange of each participant of this process on the thread's streams.

        Returns their completion events, which are valid until the next exchange.

        Sources and targets have one dtype. If other participants are missing after POLYHAL_COLLECTIVE_TIMEOUT, the
        device aborts and later work on it raises; with `trial_seconds`, the result is wrong after that time. Raises
        the failures of the participants.
        """
        with self._lock:
            prepared = self.prepare(exchanges, sources, targets, trial_seconds)
            for device in self._devices:
                device.make_room(2)
            for i, (launches, source, target) in enumerate(zip(prepared, sources, targets, strict=True)):
                self._enqueue(i, launches, source, target)
            for device in self._devices:
                device.flush()  # kernels on one device wait for kernels on others
            return [last[1] for _, last in zip(prepared, self._last, strict=False) if last is not None]

    def run_member(self, i: int, exchange: Exchange, source: Ref, target: Ref) -> None:
        """Enqueue one participant's exchange on the compute stream of its device, with no overlapping work.

        The exchanges of all other participants must be enqueued too, possibly by other threads. Raises its failures.
        """
        with self._lock:
            launch = self._launch(i, exchange, source, target, None)
        self._devices[i].make_room(1)
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
            others = self._members > len(self._devices)
            if others and not self.is_fast and exchange.longest * source.dtype.itemsize >= _RENDEZVOUS_FROM:
                nothing = (NOTHING,) * self._members
                steps.insert(0, exchange._replace(send=nothing, receive=nothing, longest=1, result_start=0))
            prepared.append([self._launch(i, step, source, target, trial_seconds) for step in steps])
        return prepared

    @contextmanager
    def in_order(self, i: int) -> Iterator[None]:
        """Enqueue exchanges of one device in the block, after its last one, which used the same window."""
        self._wait_for_last(i)
        yield
        self._mark(i)

    def _wait_for_last(self, i: int) -> None:
        device, last = self._devices[i], self._last[i]
        if last is not None and last[0] is not device.stream():
            device.wait_for(last[1])

    def _mark(self, i: int) -> None:
        device, last = self._devices[i], self._last[i]
        self._last[i] = device.stream(), device.mark(None if last is None else last[1])

    def _enqueue(self, i: int, launches: Sequence[Launch], source: Ref, target: Ref) -> None:
        """Enqueue the kernels of one device."""
        windows = self._windows[i]
        # Empty vectors have no memory. The kernel accesses none of theirs, and takes any.
        operands = [ref if ref.size else Ref(windows[0], ref.spec, 0) for ref in (source, target)]
        recording = self._devices[i].recording()
        if not recording:
            self._wait_for_last(i)
        for launch in launches:
            launch(*operands, *windows)
        if not recording:
            self._mark(i)

    def _launch(self, i: int, exchange: Exchange, source: Ref, target: Ref, trial_seconds: float | None) -> Launch:
        size = source.dtype.itemsize
        starts = [r.start for r in (*exchange.send, *exchange.receive)] + [exchange.result_start]
        aligned = not any(n * size % VECTOR for n in (source.offset, target.offset, *starts))
        # The offset of rebindable memory is known when the launch is submitted.
        aligned = aligned and all(r.spec.aligned for r in (source, target) if isinstance(r.handle, BindingSlot))
        key = i, exchange, source.dtype, aligned, trial_seconds
        launch = self._launches.get(key)
        if launch is None:
            if len(self._launches) >= _KEPT_LAUNCHES:
                self._launches.clear()
            launch = self._launches[key] = build(
                self._devices[i].runtime,
                exchange,
                self._geometry,
                self._first + i,
                source.dtype,
                aligned=aligned,
                seconds=trial_seconds or env.collective_timeout() or _NO_TIMEOUT,
                fatal=trial_seconds is None,
            )
        return launch
