"""Collectives by NCCL among CUDA devices of one process. Importing this module does not import CuPy.

Every call is enqueued on the devices' compute streams, so that NCCL's kernels are ordered with other work. NCCL chooses
the order of summation for the machine: it is fixed, but differs from the order of participants.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from polyhal.hal import dtypes
from polyhal.hal.collectives.collective import Collective, Kind, Reduction
from polyhal.hal.collectives.communicator import Communicator
from polyhal.hal.errors import BackendError, message
from polyhal.hal.layout import Ref
from polyhal.hal.system.communicators.local import LocalCommunicator

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.dtypes import DType

_BYTES = 1
"""NCCL's number of uint8, the dtype of all transfers without a reduction."""
_DTYPES = {
    dtypes.int8: 0,
    dtypes.uint8: 1,
    dtypes.int32: 2,
    dtypes.uint32: 3,
    dtypes.int64: 4,
    dtypes.uint64: 5,
    dtypes.float16: 6,
    dtypes.float32: 7,
    dtypes.float64: 8,
    dtypes.bfloat16: 9,
}
_REDUCTIONS = {Reduction.SUM: 0, Reduction.MAX: 2, Reduction.MIN: 3}
_REDUCING = frozenset({Kind.ALL_REDUCE, Kind.REDUCE, Kind.REDUCE_SCATTER})

Call = Callable[[], None]


class NcclCommunicator(Communicator):
    """Collectives by NCCL, or through the host if NCCL lacks the dtype or does not propagate NaN."""

    def __init__(self, devices: Sequence[Device], library: Any) -> None:
        """Use `library`, which is `cupy.cuda.nccl`. Raises ValueError without devices, or for a repeated device."""
        super().__init__(devices)
        self._library = library
        self._host = LocalCommunicator(devices)
        self._lock = threading.Lock()
        self._streams = [d.backend.stream.stream.ptr for d in devices]  # type: ignore[attr-defined]
        self._ranks: list[Any] = []
        """NCCL's handles, one for each participant, created at first use."""

    def run(self, collective: Collective, sources: Sequence[Ref | None], targets: Sequence[Ref | None]) -> None:
        """See `Communicator`."""
        dtype = next(r.dtype for r in (*sources, *targets) if r is not None)
        if not collective.total:
            return
        if collective.kind in _REDUCING and not _reduces(collective.reduction, dtype):
            self._host.run(collective, sources, targets)
            return
        library = self._library
        try:
            with self._lock:
                if not self._ranks:
                    self._ranks = library.NcclCommunicator.initAll([d.backend.stream.number for d in self.devices])  # type: ignore[attr-defined]
                calls = list(self._calls(collective, dtype, sources, targets))
                library.groupStart()
                try:
                    for call in calls:
                        call()
                finally:
                    library.groupEnd()
        except library.NcclError as error:
            problem = f"NCCL failed: {error}"
            fix = "NCCL_DEBUG=WARN prints the reason; without its library, collectives run through the host"
            raise BackendError(message(str(collective), problem, fix=fix, device=self.devices[0].name)) from error

    def _calls(
        self, collective: Collective, dtype: DType, sources: Sequence[Ref | None], targets: Sequence[Ref | None]
    ) -> Iterator[Call]:
        """Yield the calls of NCCL for one group. A participant's data for itself are copied."""
        counts, starts, root, size = collective.counts, collective.starts, collective.root, dtype.itemsize
        even = len(set(counts)) == 1
        send = [address(s) if s is not None else 0 for s in sources]
        receive = [address(t) if t is not None else 0 for t in targets]
        number, reduction = _DTYPES.get(dtype, _BYTES), _REDUCTIONS[collective.reduction]
        total, members = (
            collective.total,
            list(zip(range(self.size), self._ranks, send, receive, self._streams, strict=True)),
        )
        match collective.kind:
            case Kind.ALL_REDUCE:
                for _, rank, s, t, stream in members:
                    yield partial(rank.allReduce, s, t, total, number, reduction, stream)
            case Kind.REDUCE:
                yield from _reduced(members, total, 0, number, reduction, root)
            case Kind.REDUCE_SCATTER if even:
                for _, rank, s, t, stream in members:
                    yield partial(rank.reduceScatter, s, t, counts[0], number, reduction, stream)
            case Kind.REDUCE_SCATTER:
                for owner, (count, start) in enumerate(zip(counts, starts, strict=True)):
                    yield from _reduced(members, count, start * size, number, reduction, owner)
            case Kind.BROADCAST:
                for i, rank, s, t, stream in members:
                    yield partial(rank.broadcast, s if i == root else t, t, total * size, _BYTES, root, stream)
            case Kind.ALL_GATHER if even:
                for _, rank, s, t, stream in members:
                    yield partial(rank.allGather, s, t, counts[0] * size, _BYTES, stream)
            case Kind.ALL_GATHER:
                for i, s in enumerate(send):
                    for j, t in enumerate(receive):
                        yield from self._sent(i, s, j, t + starts[i] * size, counts[i] * size)
            case Kind.SCATTER:
                for j, t in enumerate(receive):
                    yield from self._sent(root, send[root] + starts[j] * size, j, t, counts[j] * size)
            case Kind.GATHER:
                for i, s in enumerate(send):
                    yield from self._sent(i, s, root, receive[root] + starts[i] * size, counts[i] * size)

    def _sent(self, source: int, start: int, target: int, to: int, nbytes: int) -> Iterator[Call]:
        """Yield the calls that send bytes from one participant to another or to itself."""
        if not nbytes or (source == target and start == to):
            return
        yield partial(self._ranks[source].send, start, nbytes, _BYTES, target, self._streams[source])
        yield partial(self._ranks[target].recv, to, nbytes, _BYTES, source, self._streams[target])


def _reduced(members: Sequence[Any], count: int, offset: int, number: int, reduction: int, root: int) -> Iterator[Call]:
    """Yield the calls that reduce a range, `offset` bytes from the start of the sources, into the whole target of `root`."""
    if count:
        for i, rank, s, t, stream in members:
            yield partial(rank.reduce, s + offset, t if i == root else 0, count, number, reduction, root, stream)


def nccl_library() -> Any:
    """Return `cupy.cuda.nccl`; None if NCCL is not installed."""
    try:
        from cupy.cuda import nccl
    except ImportError:
        return None
    return nccl if nccl.available else None


def _reduces(reduction: Reduction, dtype: DType) -> bool:
    """Return whether NCCL's reduction agrees with Polyhal's: it may lose NaN in maxima and minima."""
    return dtype in _DTYPES and (reduction is Reduction.SUM or not dtype.is_floating_point)


def address(ref: Ref) -> int:
    """Return the device address of the first element."""
    return int(ref.handle) + ref.offset * ref.dtype.itemsize
