"""Collectives by kernels that write to the memory of other devices: see shaders/opencl/collective/exchange.cl."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyopencl as cl

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, Tensor, Workspace
from polyhal.backends.opencl.peers.windows import Windows, open_windows
from polyhal.backends.opencl.queues import CommandQueue
from polyhal.hal import dtypes
from polyhal.hal.collectives.collective import Collective, Kind, Reduction
from polyhal.hal.collectives.communicator import Communicator
from polyhal.hal.collectives.descriptors import all_agree
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.memory.host_bytes import byte_view
from polyhal.hal.memory.pool import bucket
from polyhal.hal.settings import env

if TYPE_CHECKING:
    from polyhal.backends.opencl.backend import OpenCLBackend
    from polyhal.hal.collectives.process_group import ProcessGroup
    from polyhal.hal.device import Device
    from polyhal.hal.protocol import Launch

CHANNELS = 128
GROUP = 512
SLOT = 128 << 10
"""Bytes that a channel writes to another member in a step."""
_LINE = 128
"""Bytes of the flags of a channel."""
_MOST_MEMBERS = 16
"""Their windows take 240 MiB of each device, and the parameters of the kernel 0.7 of 1 KiB."""
_KEPT_LAUNCHES = 512
_VECTOR = 16
_TRIAL_SECONDS = 20.0
_UNITS = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}
_OPERATIONS = {Reduction.SUM: "sum", Reduction.MAX: "largest", Reduction.MIN: "smallest"}
_REDUCING = frozenset({Kind.ALL_REDUCE, Kind.REDUCE, Kind.REDUCE_SCATTER})


class _Range(NamedTuple):
    """A range of elements."""

    start: int
    size: int


_NOTHING = _Range(0, 0)


class Exchange(NamedTuple):
    """What one member sends to each, what it sums, and what it receives from each."""

    send: tuple[_Range, ...]
    """Of the source."""
    receive: tuple[_Range, ...]
    """Of the target. For kinds that reduce without telling everybody, nothing."""
    sum_start: int
    """Where the sum of this member's part lies in the target."""
    longest: int
    """Elements of the longest range that any member sends."""


def exchange_of(collective: Collective, me: int, lanes: int) -> Exchange:
    """What member `me` does. Parts that are free to choose begin at multiples of `lanes` elements."""
    members, total, root = range(collective.size), collective.total, collective.root
    counts, starts = collective.counts, collective.starts
    parts = [_Range(s, n) for s, n in zip(starts, counts, strict=True)]
    nothing = tuple(_NOTHING for _ in members)
    match collective.kind:
        case Kind.ALL_REDUCE:
            share = ceil_div(ceil_div(total, collective.size), lanes) * lanes
            even = tuple(_Range(min(i * share, total), max(0, min(share, total - i * share))) for i in members)
            return Exchange(even, even, even[me].start, share)
        case Kind.REDUCE:
            return Exchange(tuple(_Range(0, total if j == root else 0) for j in members), nothing, 0, total)
        case Kind.REDUCE_SCATTER:
            return Exchange(tuple(parts), nothing, 0, max(counts))
        case Kind.BROADCAST:
            whole = tuple(_Range(0, total) for _ in members)
            received = tuple(_Range(0, total if j == root else 0) for j in members)
            return Exchange(whole if me == root else nothing, received, 0, total)
        case Kind.SCATTER:
            received = tuple(_Range(0, counts[me] if j == root else 0) for j in members)
            return Exchange(tuple(parts) if me == root else nothing, received, 0, max(counts))
        case Kind.GATHER:
            sent = tuple(_Range(0, counts[me] if j == root else 0) for j in members)
            return Exchange(sent, tuple(parts) if me == root else nothing, 0, max(counts))
        case Kind.ALL_GATHER:
            return Exchange(tuple(_Range(0, counts[me]) for _ in members), tuple(parts), 0, max(counts))


def window_bytes(members: int) -> int:
    """Bytes of the window of each of so many members."""
    return (CHANNELS + 1) * _LINE + CHANNELS * 2 * (members - 1) * SLOT


class WindowCommunicator(Communicator):
    """Collectives among OpenCL devices whose kernels reach each other's windows."""

    def __init__(
        self, devices: Sequence[Device], windows: Windows, first: int, processes: ProcessGroup | None = None
    ) -> None:
        """`windows` are those of `polyhal.backends.opencl.peers.windows`. Raises ValueError for a device named twice."""
        super().__init__(devices, first, len(windows[0]))
        self._windows = windows
        self._processes = processes
        self._launches: dict[object, Launch] = {}
        self._last: list[tuple[CommandQueue, cl.Event] | None] = [None] * len(devices)
        """The end of the last collective on each device, and its queue."""
        self._lock = threading.Lock()
        self.limit = env.collective_timeout() or 1e9
        """Seconds that a kernel waits for those of the other members."""
        self.fatal = True
        """Whether the device gives up then, so that everything that follows raises."""

    def all_lengths(self, own: Sequence[int]) -> tuple[int, ...]:
        """See `Communicator`."""
        if self._processes is None:
            return tuple(own)
        lengths = np.empty(self.size, np.int64)
        self._processes.all_gather(np.array(own, np.int64), lengths, [len(self.devices)] * self._processes.size)
        return tuple(int(n) for n in lengths)

    def barrier(self) -> None:
        """See `Communicator`."""
        super().barrier()
        if self._processes is not None:
            self._processes.barrier()

    def run(self, collective: Collective, sources: Sequence[Ref | None], targets: Sequence[Ref | None]) -> None:
        """See `Communicator`. The host only starts the kernels."""
        if not collective.total:
            return
        with self._lock:
            for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
                source, target = source or target, target or source
                assert source is not None
                assert target is not None
                self._enqueue(i, collective, source, target)
            for device in self.devices:
                device.flush()  # kernels of some devices wait for those of others

    def _enqueue(self, i: int, collective: Collective, source: Ref, target: Ref) -> None:
        """Enqueue the kernel of one device after the last one, which uses the same window."""
        queue = _backend(self.devices[i]).runtime.queues.current()
        last = self._last[i]
        if last is not None and last[0] is not queue:
            queue.wait_for(last[1])
        self._launch(i, collective, source, target)(source, target, *self._windows[i])
        self._last[i] = queue, queue.mark()

    def _launch(self, i: int, collective: Collective, source: Ref, target: Ref) -> Launch:
        dtype = source.dtype
        exchange = exchange_of(collective, self.first + i, _VECTOR // dtype.itemsize)
        starts = [r.start for r in (*exchange.send, *exchange.receive)] + [exchange.sum_start]
        aligned = not any(
            n * dtype.itemsize % _VECTOR
            for n in (source.offset, target.offset, *starts)
        )
        key = i, collective._replace(temporary=False), dtype, aligned
        launch = self._launches.get(key)
        if launch is None:
            if len(self._launches) >= _KEPT_LAUNCHES:
                self._launches.clear()
            launch = self._launches[key] = self._build(i, collective, exchange, dtype, aligned)
        return launch

    def _build(self, i: int, collective: Collective, exchange: Exchange, dtype: DType, aligned: bool) -> Launch:
        lanes = _VECTOR // dtype.itemsize
        reduces = collective.kind in _REDUCING
        numbers = range(self.size)
        definitions: dict[str, str | int | bool] = {
            "DTYPE": dtype.name, "UNIT": _UNITS[dtype.itemsize], "LANES": lanes,
            "REDUCES": reduces, "GATHERS": not reduces or collective.kind is Kind.ALL_REDUCE,
            "OPERATION": _OPERATIONS[collective.reduction], "ALIGNED": aligned,
            "MEMBERS": self.size, "GROUP": GROUP, "CHANNELS": CHANNELS, "SLOT": SLOT,
            "WINDOW_PARAMETERS": ", ".join(f"__global uchar *window{n}" for n in numbers),
            "WINDOWS": ", ".join(f"window{n}" for n in numbers),
        }  # fmt: skip
        if dtype.kind == "bool" or not reduces:
            # NumPy adds booleans as "or". Programs that only copy depend on the unit alone.
            smallest = reduces and collective.reduction is Reduction.MIN
            definitions |= {"DTYPE": "uint8", "OPERATION": "smallest" if smallest else "largest"}
        piece = min(SLOT, _round_up(ceil_div(exchange.longest * dtype.itemsize, CHANNELS), GROUP * _VECTOR)) // dtype.itemsize
        args: Arguments = {
            "source": Tensor(0), "target": Tensor(1), **{f"window{n}": Workspace(2 + n) for n in numbers},
            "send_start": tuple(r.start for r in exchange.send), "send_size": tuple(r.size for r in exchange.send),
            "receive_start": tuple(r.start for r in exchange.receive),
            "receive_size": tuple(r.size for r in exchange.receive),
            "sum_start": exchange.sum_start, "longest": exchange.longest, "limit": int(self.limit * 1e9),
            "me": self.first + i, "piece": piece, "fatal": int(self.fatal), "unused": 0,
        }  # fmt: skip
        groups = min(CHANNELS, ceil_div(exchange.longest, piece))
        runtime = _backend(self.devices[i]).runtime
        return runtime.launch("collective/exchange", definitions, args, (groups * GROUP,), (GROUP,))

    def works(self) -> bool:
        """Sum a small vector, and return whether the result is right and came in time."""
        self.limit, self.fatal = _TRIAL_SECONDS, False
        numbers = [i + 1.0 for i in range(self.size)]
        spec = contiguous(dtypes.float32, (4 * self.size,))
        buffers = [d.pool.take(bucket(spec.nbytes)) for d in self.devices]
        refs = [Ref(b.handle, spec, 0) for b in buffers]
        for i, (device, ref) in enumerate(zip(self.devices, refs, strict=True)):
            device.backend.fill(numbers[self.first + i], ref)
        self.run(Collective(Kind.ALL_REDUCE, (4,) * self.size), refs, refs)
        result = np.empty(spec.shape, np.float32)
        right = True
        for device, ref in zip(self.devices, refs, strict=True):
            device.backend.copy_from_device(ref.handle, 0, byte_view(result))
            right = right and bool(np.all(result == sum(numbers)))
        self._launches.clear()
        self.limit, self.fatal = env.collective_timeout() or 1e9, True
        return right


def open_window_communicator(devices: Sequence[Device], processes: ProcessGroup | None) -> WindowCommunicator | None:
    """Return a communicator among OpenCL devices, if all of them reach each other's memory; else None.

    With `processes`, all of them make this call. Raises ProcessGroupError.
    """
    from polyhal.backends.opencl.backend import OpenCLBackend  # which imports this module

    own = len(devices)
    possible = all(isinstance(d.backend, OpenCLBackend) for d in devices)
    ranks, rank = (processes.size, processes.rank) if processes is not None else (1, 0)
    if processes is not None:
        numbers = np.empty(ranks, np.int64)
        processes.all_gather(np.array([own if possible else 0], np.int64), numbers, [1] * ranks)
        possible = len(set(numbers.tolist())) == 1 and possible
    if not possible or not 2 <= own * ranks <= _MOST_MEMBERS:
        return None
    windows = open_windows([_backend(d).peers for d in devices], processes, window_bytes(own * ranks))
    if windows is None:
        return None
    communicator = WindowCommunicator(devices, windows, own * rank, processes)
    works = communicator.works()
    if processes is not None:
        works = all_agree(processes, works)
    return communicator if works else None


def _backend(device: Device) -> OpenCLBackend:
    from polyhal.backends.opencl.backend import OpenCLBackend

    assert isinstance(device.backend, OpenCLBackend)
    return device.backend


def _round_up(n: int, unit: int) -> int:
    return ceil_div(n, unit) * unit


__all__ = ["Exchange", "WindowCommunicator", "exchange_of", "open_window_communicator", "window_bytes"]
