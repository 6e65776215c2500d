"""Process groups in terms of byte movements: an engine moves arrays, and reductions run here, in the order of the ranks.

The last bits of MPI's own reductions depend on the algorithm that the library chooses. Moving bytes is exact with any
algorithm, so engines can use the fastest one.
"""

from __future__ import annotations

import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from polyhal.distributed.half_sums import reduce_rows
from polyhal.hal.collectives.collective import divided, reduction_of
from polyhal.hal.errors import UnsupportedDTypeError, message

Wait = Callable[[], None]
"""Function that waits for a movement in flight. Raises ProcessGroupError if it cannot complete."""
Parts = tuple[Sequence[int], Sequence[int]]
"""Bytes and offset of the part of each rank."""

CHUNK = 2 << 20
"""Bytes of each rank's part of a chunk: reducing a chunk overlaps with moving the next one."""
_SMALL = 1 << 15
"""Maximum bytes for which one all-gather and a reduction of everything on every rank is faster than two movements."""


class MovingGroup(ABC):
    """Collectives of `ProcessGroup`, for engines that define byte movements."""

    rank: int
    size: int

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._scratch: dict[int, np.ndarray] = {}
        self._operation = ""
        """Operation in progress, for error messages."""

    # --- defined by engines: arguments are vectors of uint8 ---------------------------------------------------------

    @abstractmethod
    def _start_all_to_all(self, source: np.ndarray, outgoing: Parts, target: np.ndarray, incoming: Parts) -> Wait:
        """Start to send parts of `source` to all ranks, and to receive parts of `target` from all ranks."""

    @abstractmethod
    def _start_all_gather(self, source: np.ndarray | None, target: np.ndarray, incoming: Parts) -> Wait:
        """Start to send `source` to all ranks; with None, this rank's part of `target`."""

    @abstractmethod
    def _start_broadcast(self, array: np.ndarray, root: int) -> Wait:
        """Start to send the root's `array` to all ranks."""

    @abstractmethod
    def _start_send(self, array: np.ndarray, to: int) -> Wait:
        """Start to send to one rank."""

    @abstractmethod
    def _start_receive(self, array: np.ndarray, source: int) -> Wait:
        """Start to receive from one rank."""

    # --- ProcessGroup -------------------------------------------------------------------------------------------------

    def all_reduce(self, array: np.ndarray, reduction: str = "sum") -> None:
        """See `ProcessGroup`."""
        self._check("all_reduce", array, reduction=reduction)
        if self.size == 1 or not array.size:
            return
        with self._lock:
            if array.nbytes <= _SMALL:
                self._reduce_whole(array, reduction)
            else:
                self._reduce_chunks(array, reduction)

    def reduce_scatter(
        self, source: np.ndarray, target: np.ndarray, counts: Sequence[int], reduction: str = "sum"
    ) -> None:
        """See `ProcessGroup`."""
        self._check("reduce_scatter", source, size=sum(counts), reduction=reduction)
        self._check("reduce_scatter", target, size=self._own("reduce_scatter", counts), dtype=source.dtype)
        starts = _starts(counts)
        if self.size == 1:
            target[:] = source
            return
        itemsize, mine = source.itemsize, counts[self.rank]
        step = max(1, CHUNK // itemsize)
        with self._lock:
            waiting: tuple[Wait, np.ndarray, int, int] | None = None
            for number, begin in enumerate(range(0, max(counts), step)):
                lengths = [min(max(n - begin, 0), step) for n in counts]
                own = lengths[self.rank]
                rows = self._rows(number % 2, self.size, own, source.dtype)
                outgoing = _in_bytes(lengths, [s + begin for s in starts], itemsize)
                incoming = _in_bytes([own] * self.size, [own * i for i in range(self.size)], itemsize)
                wait = self._start_all_to_all(_bytes(source), outgoing, _bytes(rows), incoming)
                if waiting is not None:
                    _finish(waiting, target, reduction)
                waiting = (wait, rows, min(begin, mine), own)
            if waiting is not None:
                _finish(waiting, target, reduction)

    def all_gather(self, source: np.ndarray, target: np.ndarray, counts: Sequence[int]) -> None:
        """See `ProcessGroup`."""
        self._check("all_gather", source, size=self._own("all_gather", counts))
        self._check("all_gather", target, size=sum(counts), dtype=source.dtype)
        starts = _starts(counts)
        place = target[starts[self.rank] : starts[self.rank] + source.size]
        inside = _address(source) == _address(place)
        with self._lock:
            parts = _in_bytes(counts, starts, source.itemsize)
            self._start_all_gather(None if inside else _bytes(source), _bytes(target), parts)()

    def broadcast(self, array: np.ndarray, root: int = 0) -> None:
        """See `ProcessGroup`."""
        self._check("broadcast", array, root=root)
        with self._lock:
            self._start_broadcast(_bytes(array), root)()

    def scatter(self, source: np.ndarray | None, target: np.ndarray, counts: Sequence[int], root: int = 0) -> None:
        """See `ProcessGroup`."""
        self._check("scatter", target, size=self._own("scatter", counts), root=root)
        starts = _starts(counts)
        nothing = np.empty(0, target.dtype)
        if self.rank == root:
            source = self._required("scatter", source, sum(counts), target.dtype)
        given = source if source is not None and self.rank == root else nothing
        outgoing = [n if self.rank == root else 0 for n in counts]
        incoming = [target.size if i == root else 0 for i in range(self.size)]
        with self._lock:
            self._start_all_to_all(
                _bytes(given),
                _in_bytes(outgoing, starts, target.itemsize),
                _bytes(target),
                _in_bytes(incoming, [0] * self.size, target.itemsize),
            )()

    def gather(self, source: np.ndarray, target: np.ndarray | None, counts: Sequence[int], root: int = 0) -> None:
        """See `ProcessGroup`."""
        self._check("gather", source, size=self._own("gather", counts), root=root)
        starts = _starts(counts)
        nothing = np.empty(0, source.dtype)
        if self.rank == root:
            target = self._required("gather", target, sum(counts), source.dtype)
        taken = target if target is not None and self.rank == root else nothing
        outgoing = [source.size if i == root else 0 for i in range(self.size)]
        incoming = [n if self.rank == root else 0 for n in counts]
        with self._lock:
            self._start_all_to_all(
                _bytes(source),
                _in_bytes(outgoing, [0] * self.size, source.itemsize),
                _bytes(taken),
                _in_bytes(incoming, starts, source.itemsize),
            )()

    def all_to_all(
        self, source: np.ndarray, outgoing: Sequence[int], target: np.ndarray, incoming: Sequence[int]
    ) -> None:
        """Send parts of `source` to all ranks, and store parts from all ranks in `target`: so many elements of each rank."""
        self._check("all_to_all", source, size=sum(outgoing))
        self._check("all_to_all", target, size=sum(incoming), dtype=source.dtype)
        with self._lock:
            self._start_all_to_all(
                _bytes(source),
                _in_bytes(outgoing, _starts(outgoing), source.itemsize),
                _bytes(target),
                _in_bytes(incoming, _starts(incoming), source.itemsize),
            )()

    def send(self, array: np.ndarray, to: int) -> None:
        """See `ProcessGroup`."""
        self._check("send", array, root=to)
        with self._lock:
            self._start_send(_bytes(array), to)()

    def receive(self, array: np.ndarray, source: int) -> None:
        """See `ProcessGroup`."""
        self._check("receive", array, root=source)
        with self._lock:
            self._start_receive(_bytes(array), source)()

    def barrier(self) -> None:
        """See `ProcessGroup`."""
        with self._lock:
            self._operation = "barrier"
            self._reduce_whole(np.zeros(1, np.int8), "max")

    # --- reductions ---------------------------------------------------------------------------------------------------

    def _reduce_whole(self, array: np.ndarray, reduction: str) -> None:
        """Gather all arrays on every rank, and reduce them there: one movement."""
        rows = self._rows(0, self.size, array.size, array.dtype)
        parts = _in_bytes([array.size] * self.size, [array.size * i for i in range(self.size)], array.itemsize)
        self._start_all_gather(_bytes(array), _bytes(rows), parts)()
        reduce_rows(rows, reduction, array)

    def _reduce_chunks(self, array: np.ndarray, reduction: str) -> None:
        """Reduce a part of each chunk on every rank, while the next chunk's parts and the previous chunk's results move."""
        step = max(1, CHUNK // array.itemsize) * self.size
        waiting: tuple[Wait, np.ndarray, np.ndarray, Parts] | None = None
        sharing: list[Wait] = []

        def reduce_waiting() -> None:
            if waiting is None:
                return
            wait, rows, chunk, parts = waiting
            wait()
            for wait in sharing:
                wait()
            sharing.clear()
            start, size = parts[1][self.rank] // array.itemsize, parts[0][self.rank] // array.itemsize
            reduce_rows(rows, reduction, chunk[start : start + size])
            sharing.append(self._start_all_gather(None, _bytes(chunk), parts))

        for number, begin in enumerate(range(0, array.size, step)):
            chunk = array[begin : begin + step]
            counts = divided(chunk.size, self.size)
            parts = _in_bytes(counts, _starts(counts), array.itemsize)
            own = counts[self.rank]
            rows = self._rows(number % 2, self.size, own, array.dtype)
            incoming = _in_bytes([own] * self.size, [own * i for i in range(self.size)], array.itemsize)
            wait = self._start_all_to_all(_bytes(chunk), parts, _bytes(rows), incoming)
            reduce_waiting()
            waiting = (wait, rows, chunk, parts)
        reduce_waiting()
        for wait in sharing:
            wait()

    def _rows(self, number: int, rows: int, columns: int, dtype: np.dtype[Any]) -> np.ndarray:
        """Return a receive buffer. It is reused, because allocating memory costs as much as a copy."""
        nbytes = rows * columns * dtype.itemsize
        kept = self._scratch.get(number)
        if kept is None or kept.size < nbytes:
            kept = self._scratch[number] = np.empty(nbytes, np.uint8)
        return kept[:nbytes].view(dtype).reshape(rows, columns)

    # --- checks -------------------------------------------------------------------------------------------------------

    def _check(
        self,
        name: str,
        array: np.ndarray,
        *,
        size: int | None = None,
        dtype: Any = None,
        reduction: str = "sum",
        root: int = 0,
    ) -> None:
        """Raise ValueError for arguments that would leave other ranks waiting."""
        self._operation = name
        if not array.flags.c_contiguous or array.ndim != 1:
            raise ValueError(
                message(name, f"an array of shape {array.shape}", expected="a contiguous vector", fix="use ravel()")
            )
        if size is not None and array.size != size:
            raise ValueError(message(name, f"an array of {array.size} elements", expected=f"{size}, the sum of counts"))
        if dtype is not None and array.dtype != dtype:
            raise ValueError(
                message(name, f"an array of {array.dtype}", expected=f"{dtype}, the dtype of the other array")
            )
        if reduction != "mean":
            reduction_of(reduction, name)
        elif array.dtype.kind in "biu":
            problem = f"the mean of an array of {array.dtype}"
            raise UnsupportedDTypeError(message(name, problem, expected="a floating dtype", fix="use sum"))
        if not 0 <= root < self.size:
            raise ValueError(message(name, f"rank {root} does not exist", expected=f"0 to {self.size - 1}"))

    def _own(self, name: str, counts: Sequence[int]) -> int:
        if len(counts) != self.size or any(n < 0 for n in counts):
            raise ValueError(message(name, f"counts are {list(counts)}", expected=f"one for each of {self.size} ranks"))
        return counts[self.rank]

    def _required(self, name: str, array: np.ndarray | None, size: int, dtype: Any) -> np.ndarray:
        if array is None:
            raise ValueError(message(name, "the root passed no array", expected=f"one of {size} elements"))
        self._check(name, array, size=size, dtype=dtype)
        return array


def _finish(waiting: tuple[Wait, np.ndarray, int, int], target: np.ndarray, reduction: str) -> None:
    wait, rows, begin, size = waiting
    wait()
    reduce_rows(rows, reduction, target[begin : begin + size])


def _starts(counts: Sequence[int]) -> list[int]:
    return [0, *itertools.accumulate(counts[:-1])]


def _in_bytes(counts: Sequence[int], starts: Sequence[int], itemsize: int) -> Parts:
    return [n * itemsize for n in counts], [s * itemsize for s in starts]


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])
