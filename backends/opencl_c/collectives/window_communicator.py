"""Collectives among devices whose kernels write to each other's windows, in one or several processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import numpy as np

from polyhal.backends.opencl_c.collectives.exchanger import Exchanger
from polyhal.backends.opencl_c.collectives.schedule import exchange_of
from polyhal.backends.opencl_c.collectives.windows import open_windows
from polyhal.backends.opencl_c.lowering.collective.exchange import MAX_PARTICIPANTS, Exchange, Geometry
from polyhal.hal import dtypes
from polyhal.hal.collectives.collective import Collective, Kind, divided
from polyhal.hal.collectives.communicator import Communicator, members_of
from polyhal.hal.collectives.traffic import bus_elements
from polyhal.hal.core.memory.pool import bucket
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import PolyhalError
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.system.communicators.descriptors import all_agree

if TYPE_CHECKING:
    from polyhal.backends.opencl_c.collectives.participant import Participant
    from polyhal.hal.collectives.process_group import ProcessGroup
    from polyhal.hal.device import Device

GEOMETRY = Geometry(channels=128, group=512, slot=128 << 10, batch=2)
"""Saturates the links of two H200s: half as many channels reach 0.9 of their bandwidth. Twice as many work-items or bytes of a
slot, and larger batches, are not faster."""
_TRIAL_SECONDS = 20.0
_FAST = 60e9
"""Minimum bus bandwidth, in bytes per second, for which collectives run on the compute stream without overlap.

A step of GPT-2 on two H100s takes 44.7 ms then, and 46.3 with overlapped collectives, whose kernels occupy compute
units and share memory bandwidth. On slower links (PCIe) collectives take so long that they have to overlap with
computation.
"""
_MEASUREMENTS = 5
_KEPT = 256
_turn = threading.RLock()
"""Lock for all groups, because a device may be in several."""
_COMPUTE_STREAM_BUCKET = 512 * 2**20


class WindowCommunicator(Communicator):
    """Collectives by kernels that the host only enqueues."""

    bucket_bytes = 100 * 2**20
    """Bytes per bucket of overlapped collectives: a step of GPT-2 on two H200s takes 44.5 ms, with 25 MiB 48.2.

    On the compute stream buckets are larger still, so that a large parameter of one device is sent while others are
    received.
    """

    def __init__(self, devices: Sequence[Device], exchanger: Exchanger, processes: ProcessGroup | None = None) -> None:
        """With `processes`, each has an equal number of devices. Raises ValueError for a repeated device."""
        super().__init__(devices, processes, [len(devices)] * (1 if processes is None else processes.size))
        self._exchanger = exchanger
        self._known: dict[tuple[Collective, DType], list[Exchange]] = {}
        """Exchanges of the last collectives."""
        self.on_compute_stream = exchanger.is_fast
        if self.on_compute_stream:
            self.bucket_bytes = _COMPUTE_STREAM_BUCKET
            self.turn = _turn
            self.recordable = exchanger.recordable

    def run(self, collective: Collective, sources: Sequence[Ref | None], targets: Sequence[Ref | None]) -> None:
        """See `Communicator`."""
        # A participant that only sends or only receives passes its buffer for both roles; the kernel does not access
        # the other.
        pairs = [(s or t, t or s) for s, t in zip(sources, targets, strict=True)]
        send = [s for s, _ in pairs if s is not None]
        receive = [t for _, t in pairs if t is not None]
        if collective.total:
            with self.turn:
                self._exchanger.run(self._exchanges(collective, send[0].dtype), send, receive)

    def run_member(self, i: int, collective: Collective, source: Ref | None, target: Ref | None) -> None:
        """See `Communicator`."""
        send, receive = source or target, target or source
        if collective.total and send is not None and receive is not None:
            exchange = self._exchanges(collective, send.dtype)[i]
            self._exchanger.run_member(i, exchange, send, receive)

    def submitting(self, i: int) -> AbstractContextManager[None]:
        """See `Communicator`."""
        return self._exchanger.in_order(i)

    def _exchanges(self, collective: Collective, dtype: DType) -> list[Exchange]:
        """Return the exchange of each participant of this process."""
        exchanges = self._known.get((collective, dtype))
        if exchanges is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            members = range(self.first, self.first + len(self.devices))
            exchanges = self._known[collective, dtype] = [exchange_of(collective, m, dtype) for m in members]
        return exchanges

    def works(self) -> bool:
        """Sum a small vector, and return whether the result is right and in time, in all processes."""
        numbers = range(1, self.size + 1)
        spec = contiguous(dtypes.float32, (4 * self.size,))
        buffers = [d.pool.take(bucket(spec.nbytes)) for d in self.devices]
        refs = [Ref(b.handle, spec, 0) for b in buffers]
        exchanges = self._exchanges(Collective(Kind.ALL_REDUCE, (4,) * self.size), spec.dtype)

        def build() -> bool:
            for i, (device, ref) in enumerate(zip(self.devices, refs, strict=True)):
                device.backend.fill(float(numbers[self.first + i]), ref)
            self._exchanger.prepare(exchanges, refs, refs, _TRIAL_SECONDS)
            return True

        def add() -> bool:
            self._exchanger.run(exchanges, refs, refs, trial_seconds=_TRIAL_SECONDS)
            results = [device.download(ref) for device, ref in zip(self.devices, refs, strict=True)]
            return all(bool(np.all(result == sum(numbers))) for result in results)

        return self._succeeds(build) and self._succeeds(add)

    def is_fast(self) -> bool:
        """Return whether exchanges are so fast, in all processes, that overlapping them is not worthwhile."""
        spec = contiguous(dtypes.float32, (GEOMETRY.window_bytes(2) // 4,))
        buffers = [d.pool.take(bucket(spec.nbytes)) for d in self.devices]
        refs = [Ref(b.handle, spec, 0) for b in buffers]
        collective = Collective(Kind.ALL_REDUCE, divided(spec.size, self.size))
        exchanges, times = self._exchanges(collective, spec.dtype), list[float]()

        def measure() -> bool:
            for _ in range(_MEASUREMENTS):
                begin = time.perf_counter()
                for end in self._exchanger.run(exchanges, refs, refs, trial_seconds=_TRIAL_SECONDS):
                    end.wait()
                times.append(time.perf_counter() - begin)
            return bus_elements(collective) * spec.dtype.itemsize / min(times) > _FAST

        return self._succeeds(measure)

    def _succeeds(self, attempt: Callable[[], bool]) -> bool:
        """Return whether `attempt` succeeds in all processes."""
        failures: tuple[type[Exception], ...] = (*self._exchanger.failures, PolyhalError)
        try:
            done = attempt()
        except failures:
            done = False
        return done if self._processes is None else all_agree(self._processes, done)


def open_window_communicator(
    devices: Sequence[Device], peers: Sequence[Participant] | None, processes: ProcessGroup | None
) -> WindowCommunicator | None:
    """Return a communicator among devices, if all can access each other's memory; else None.

    `peers` are the devices' participants; None unless all are of one backend. With `processes`, every process must make
    this call. Raises ProcessGroupError.
    """
    own = 0 if peers is None else len(peers)
    members = [own] if processes is None else members_of(processes, own)
    if peers is None or len(set(members)) > 1 or not 2 <= sum(members) <= MAX_PARTICIPANTS:
        return None
    # Groups of the same devices share their windows, which are never freed.
    key, kept = (tuple(id(p.runtime) for p in peers), id(processes)), peers[0].exchangers
    known = key in kept
    if not (known if processes is None else all_agree(processes, known)):
        kept[key] = _exchanger(devices, peers, processes, sum(members)), processes
    exchanger = kept[key][0]
    return None if exchanger is None else WindowCommunicator(devices, exchanger, processes)


def _exchanger(
    devices: Sequence[Device], peers: Sequence[Participant], processes: ProcessGroup | None, members: int
) -> Exchanger | None:
    """Return the exchanger of all participants; None if it does not work."""
    windows = open_windows(peers, processes, GEOMETRY.window_bytes(members))
    if windows is None:
        return None
    first = 0 if processes is None else len(peers) * processes.rank
    exchanger = Exchanger(peers, windows, GEOMETRY, first)
    communicator = WindowCommunicator(devices, exchanger, processes)
    if not communicator.works():
        return None
    exchanger.is_fast = communicator.is_fast()
    return exchanger if communicator.works() else None  # participants that timed out do not wait in later exchanges
