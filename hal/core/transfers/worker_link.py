"""Links between workers: channels on which the worker threads of several devices block."""

from __future__ import annotations

from typing import Any, Protocol

COLLECTIVES = "collectives"
"""Key of the worker that runs overlapped collectives."""
WorkerKey = Any
"""Worker key: a device, a (source, target) pair for peer copies, or COLLECTIVES."""


class WorkerStoppedError(Exception):
    """A worker was woken from a wait because another worker has failed."""


class WorkerLink(Protocol):
    """Channel between workers, used once in each run of a step."""

    def stop(self) -> None:
        """Wake all waiting workers with WorkerStoppedError. Called when a worker has failed."""

    def clear(self) -> None:
        """Drop in-flight values. Called when all workers have stopped."""

    def is_behind(self, worker: WorkerKey) -> bool:
        """Return whether devices of other workers are blocked on work that this worker has not enqueued."""

    def waited(self, worker: WorkerKey) -> int:
        """Return the nanoseconds that a worker has waited here, summed over all runs."""
