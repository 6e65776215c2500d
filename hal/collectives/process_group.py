"""Protocol of process groups: collectives on arrays in host memory among processes of one or many machines.

MPI and Ray implement it (`polyhal.distributed`); other distributions add engines under the entry-point group
`polyhal.process_groups`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from polyhal.hal.errors import PolyhalError


class ProcessGroupError(PolyhalError, RuntimeError):
    """A process of the group is gone, aborted, or did not answer in time; the message names it and the remedy."""


@runtime_checkable
class ProcessGroup(Protocol):
    """The processes of one job, numbered from 0: their ranks.

    All ranks make the same calls in the same order. Arrays are contiguous NumPy vectors of any dtype of Polyhal, bfloat16
    included; `counts` has the number of elements of each rank, which may differ and may be 0. Sums are taken in the order of
    the ranks, and means are quotients of them: in float32 with one final rounding for float16 and bfloat16; integers wrap
    around. So results are bitwise
    reproducible, bitwise identical on every rank, and do not depend on the division of an array.

    Calls block. Every call raises ProcessGroupError, within seconds, once another rank is gone. Calls of several threads are
    serialized; their order must be the same on all ranks.
    """

    @property
    def rank(self) -> int:
        """Rank of this process."""

    @property
    def size(self) -> int:
        """Number of processes."""

    @property
    def local_rank(self) -> int:
        """Index of this process among the processes of its machine."""

    @property
    def local_size(self) -> int:
        """Number of processes on this machine."""

    def all_reduce(self, array: np.ndarray, reduction: str = "sum") -> None:
        """Replace `array` (N,) by the reduction of the arrays of all ranks: sum, mean, max or min.

        Raises ValueError for others, and UnsupportedDTypeError for a mean of integers.
        """

    def reduce_scatter(
        self, source: np.ndarray, target: np.ndarray, counts: Sequence[int], reduction: str = "sum"
    ) -> None:
        """Reduce the sources (sum of counts,) of all ranks, and store this rank's part in `target` (counts[rank],)."""

    def all_gather(self, source: np.ndarray, target: np.ndarray, counts: Sequence[int]) -> None:
        """Store the sources (counts[rank],) of all ranks, one after another, in `target` (sum of counts,).

        `source` may be this rank's part of `target`.
        """

    def broadcast(self, array: np.ndarray, root: int = 0) -> None:
        """Replace `array` (N,) by the array of the rank `root`."""

    def scatter(self, source: np.ndarray | None, target: np.ndarray, counts: Sequence[int], root: int = 0) -> None:
        """Store this rank's part of the source (sum of counts,) of `root` in `target` (counts[rank],)."""

    def gather(self, source: np.ndarray, target: np.ndarray | None, counts: Sequence[int], root: int = 0) -> None:
        """Store the sources (counts[rank],) of all ranks, one after another, in the target (sum of counts,) of `root`."""

    def send(self, array: np.ndarray, to: int) -> None:
        """Send `array` to another rank, which calls `receive`."""

    def receive(self, array: np.ndarray, source: int) -> None:
        """Replace `array` by an array that the rank `source` sends, of the same dtype and length."""

    def barrier(self) -> None:
        """Return when all ranks have called this."""

    def abort(self, reason: str) -> None:
        """Abort the group: calls of all ranks raise ProcessGroupError with the reason. Returns immediately."""

    def close(self) -> None:
        """Leave the group. No call may follow."""


@dataclass(frozen=True, slots=True)
class ProcessGroupSpec:
    """An engine that a distribution provides.

    The distribution registers a module under the entry-point group `polyhal.process_groups`. Its function
    `polyhal_process_groups`, marked with `polyhal.hal.hookspecs.hookimpl`, returns a list of specs.
    """

    name: str
    """Name that is passed to `polyhal.distributed.init`."""
    connect: Callable[[], ProcessGroup] | str
    """Factory of this process's group, or "module:function", which is imported when the engine is used. Raises
    ProcessGroupError if this process was not started as part of a job."""
    recognises: Callable[[], bool] | None = None
    """Test whether this engine started this process, so that `init()` without a name chooses it. Must be cheap."""
