"""Collectives among OpenCL devices whose kernels write to each other's windows, in one or several processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.opencl.peers.exchange import Exchanger
from polyhal.backends.opencl.peers.windows import open_windows
from polyhal.backends.opencl_c.lowering.collective.exchange import (
    MAX_PARTICIPANTS,
    NOTHING,
    VECTOR,
    Exchange,
    Geometry,
    Range,
)
from polyhal.hal import dtypes
from polyhal.hal.collectives.collective import Collective, Kind, Reduction, divided
from polyhal.hal.collectives.communicator import Communicator, members_of
from polyhal.hal.collectives.traffic import bus_elements
from polyhal.hal.core.memory.pool import bucket
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import PolyhalError
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.system.communicators.descriptors import all_agree

if TYPE_CHECKING:
    from polyhal.backends.opencl.peers.peer_copies import PeerCopies
    from polyhal.hal.collectives.process_group import ProcessGroup
    from polyhal.hal.device import Device

GEOMETRY = Geometry(channels=128, group=512, slot=128 << 10)
"""Saturates the links of two H200s: half as many channels reach 0.8 of their bandwidth."""
_TRIAL_SECONDS = 20.0
_FAST = 60e9
"""Minimum bus bandwidth, in bytes per second, for which collectives run on the compute stream without overlap.

A step of GPT-2 on two H100s takes 44.7 ms then, and 46.3 with overlapped collectives, whose kernels occupy compute
units and share memory bandwidth. On slower links (PCIe) collectives take so long that they have to overlap with
computation.
"""
_MEASUREMENTS = 5
_turn = threading.RLock()
"""Lock for all groups, because a device may be in several."""
_COMPUTE_STREAM_BUCKET = 512 * 2**20
_OPERATIONS = {Reduction.SUM: "sum", Reduction.MAX: "largest", Reduction.MIN: "smallest"}


def exchange_of(collective: Collective, me: int, dtype: DType) -> Exchange:
    """Return the exchange of participant `me`. Parts without a prescribed start begin at multiples of 16 bytes."""
    members, total, root = range(collective.size), collective.total, collective.root
    counts = collective.counts
    parts = tuple(Range(s, n) for s, n in zip(collective.starts, counts, strict=True))
    operation = _OPERATIONS[collective.reduction]
    if dtype.kind == "bool" and operation == "sum":
        operation = "largest"  # NumPy's sum of booleans is a logical or
    nothing = tuple(NOTHING for _ in members)

    def only_root(size: int) -> tuple[Range, ...]:
        return tuple(Range(0, size if j == root else 0) for j in members)

    match collective.kind:
        case Kind.ALL_REDUCE:
            lanes = VECTOR // dtype.itemsize
            share = ceil_div(ceil_div(total, collective.size), lanes) * lanes
            even = tuple(Range(min(i * share, total), max(0, min(share, total - i * share))) for i in members)
            return Exchange(even, even, share, operation, result_start=even[me].start)
        case Kind.REDUCE:
            return Exchange(only_root(total), nothing, total, operation, gathers=False)
        case Kind.REDUCE_SCATTER:
            return Exchange(parts, nothing, max(counts), operation, gathers=False)
        case Kind.BROADCAST:
            whole = tuple(Range(0, total) for _ in members)
            return Exchange(whole if me == root else nothing, only_root(total), total)
        case Kind.SCATTER:
            return Exchange(parts if me == root else nothing, only_root(counts[me]), max(counts))
        case Kind.GATHER:
            return Exchange(only_root(counts[me]), parts if me == root else nothing, max(counts))
        case Kind.ALL_GATHER:
            return Exchange(tuple(Range(0, counts[me]) for _ in members), parts, max(counts))


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
        self.on_compute_stream = exchanger.is_fast
        if self.on_compute_stream:
            self.bucket_bytes = _COMPUTE_STREAM_BUCKET
            self.turn = _turn

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
            exchange = exchange_of(collective, self.first + i, send.dtype)
            self._exchanger.run_member(i, exchange, send, receive)

    def _exchanges(self, collective: Collective, dtype: DType) -> list[Exchange]:
        return [exchange_of(collective, self.first + i, dtype) for i in range(len(self.devices))]

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
        try:
            done = attempt()
        except (cl.Error, PolyhalError):
            done = False
        return done if self._processes is None else all_agree(self._processes, done)


def open_window_communicator(
    devices: Sequence[Device], peers: Sequence[PeerCopies] | None, processes: ProcessGroup | None
) -> WindowCommunicator | None:
    """Return a communicator among OpenCL devices, if all can access each other's memory; else None.

    `peers` belong to the devices; None unless all are OpenCL's. With `processes`, every process must make this call.
    Raises ProcessGroupError.
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
    devices: Sequence[Device], peers: Sequence[PeerCopies], processes: ProcessGroup | None, members: int
) -> Exchanger | None:
    """Return the exchanger of all participants; None if it does not work."""
    windows = open_windows(peers, processes, GEOMETRY.window_bytes(members))
    if windows is None:
        return None
    first = 0 if processes is None else len(peers) * processes.rank
    exchanger = Exchanger([p.runtime for p in peers], windows, GEOMETRY, first)
    communicator = WindowCommunicator(devices, exchanger, processes)
    if not communicator.works():
        return None
    exchanger.is_fast = communicator.is_fast()
    return exchanger if communicator.works() else None  # participants that timed out do not wait in later exchanges
