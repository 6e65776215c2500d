"""The protocol of process groups: arrays in host memory that processes of one or many machines combine and exchange.

MPI and Ray are behind it (`polyhal.distributed`); other distributions add engines under the entry-point group
`polyhal.process_groups`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from polyhal.hal.errors import PolyhalError


class ProcessGroupError(PolyhalError, RuntimeError):
    """A process of the group is gone, gave up, or did not answer in time; the message says which and what to do."""


@runtime_checkable
class ProcessGroup(Protocol):
    """The processes of one job, numbered from 0: their ranks.

    All ranks make the same calls in the same order. Arrays are contiguous NumPy vectors of any dtype of Polyhal, bfloat16
    included; `counts` has one number of elements for each rank, and may differ and be 0. Sums are taken in the order of the
    ranks, those of float16 and bfloat16 in float32 with one rounding at the end; integers wrap around. So results are the same
    from run to run and on every rank, bit for bit, and do not depend on how an array is divided.

    Calls block. Every call raises ProcessGroupError, within seconds, once another rank is gone. Calls of several threads
    follow one another; their order must be the same on all ranks.
    """

    @property
    def rank(self) -> int:
        """The number of this process."""

    @property
    def size(self) -> int:
        """The number of processes."""

    @property
    def local_rank(self) -> int:
        """The number of this process among those of its machine."""

    @property
    def local_size(self) -> int:
        """The number of processes on this machine."""

    def all_reduce(self, array: np.ndarray, reduction: str = "sum") -> None:
        """Replace `array` (N,) by the reduction of the arrays of all ranks: sum, max or min. Raises ValueError for others."""

    def reduce_scatter(
        self, source: np.ndarray, target: np.ndarray, counts: Sequence[int], reduction: str = "sum"
    ) -> None:
        """Reduce the sources (sum of counts,) of all ranks, and store this rank's part in `target` (counts[rank],)."""

    def all_gather(self, source: np.ndarray, target: np.ndarray, counts: Sequence[int]) -> None:
        """Store the sources (counts[rank],) of all ranks, one after another, in `target` (sum of counts,).

        `source` may be this rank's part of `target`.
        """

    def broadcast(self, array: np.ndarray, root: int = 0) -> None:
        """Replace `array` (N,) by that of the rank `root`."""

    def scatter(self, source: np.ndarray | None, target: np.ndarray, counts: Sequence[int], root: int = 0) -> None:
        """Store this rank's part of the source (sum of counts,) of `root` in `target` (counts[rank],)."""

    def gather(self, source: np.ndarray, target: np.ndarray | None, counts: Sequence[int], root: int = 0) -> None:
        """Store the sources (counts[rank],) of all ranks, one after another, in the target (sum of counts,) of `root`."""

    def send(self, array: np.ndarray, to: int) -> None:
        """Send `array` to another rank, which calls `receive`."""

    def receive(self, array: np.ndarray, source: int) -> None:
        """Replace `array` by what the rank `source` sends, of the same dtype and length."""

    def barrier(self) -> None:
        """Return when all ranks have called this."""

    def abort(self, reason: str) -> None:
        """Tell all ranks that this one gives up: their calls raise ProcessGroupError with the reason. Returns at once."""

    def close(self) -> None:
        """Leave the group; the last call."""


@dataclass(frozen=True, slots=True)
class ProcessGroupSpec:
    """An engine that a distribution offers.

    It registers a module under the entry-point group `polyhal.process_groups`, with a function `polyhal_process_groups`, marked
    with `polyhal.hal.hookspecs.hookimpl`, that returns these.
    """

    name: str
    """The name that is passed to `polyhal.distributed.init`."""
    connect: Callable[[], ProcessGroup] | str
    """Makes the group of this process, or "module:function", which is imported when the engine is used. Raises
    ProcessGroupError if this process was not started as part of a job."""
    recognises: Callable[[], bool] | None = None
    """Whether this process was started by this engine, so that `init()` without a name chooses it. Must be cheap."""
