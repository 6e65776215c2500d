"""Collectives on compute streams: each device enqueues its own part of a collective, in order with its kernels.

The devices wait for each other; the host threads do not. Once one device has enqueued its part, all others must enqueue theirs,
even if the run fails: otherwise the first device would deadlock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from polyhal.hal.collectives.collective import Collective
from polyhal.hal.collectives.communicator import Communicator
from polyhal.hal.core.transfers.worker_link import WorkerKey
from polyhal.hal.layout import Ref

if TYPE_CHECKING:
    from polyhal.hal.core.memory.streams import Stream
    from polyhal.hal.device import Device


class EnqueuedCollective:
    """One collective of a step, enqueued on the compute streams of its devices."""

    def __init__(self, collective: Collective, communicator: Communicator) -> None:
        """Bind a collective to a communicator with `on_compute_stream`."""
        self._collective = collective
        self.communicator = communicator
        members = len(communicator.devices)
        self._on_worker = [False] * members
        """Participants that are being enqueued by a worker thread of their own at this moment."""
        self._begun = [0] * members
        """Number of times each participant was enqueued by a worker, over all runs."""
        self._operands: dict[int, tuple[Ref | None, Ref | None]] = {}
        """Send and receive buffers of the participants so far, where one thread runs all nodes in graph order."""

    def record(self, i: int, source: Ref | None, target: Ref | None) -> None:
        """Record the part of participant `i` in a command buffer, or enqueue it. Only for recordable communicators."""
        self.communicator.run_member(i, self._collective, source, target)

    def begin(self, device: Device) -> None:
        """Count the part of a device, which was submitted in a command buffer."""
        self._begun[self.communicator.devices.index(device)] += 1

    def take_part(self, i: int, source: Ref | None, target: Ref | None) -> None:
        """Enqueue the part of participant `i`. Where one thread runs all nodes, the last participant enqueues all parts."""
        if self._on_worker[i] or len(self._on_worker) == 1:
            self.communicator.run_member(i, self._collective, source, target)
            return
        self._operands[i] = source, target
        if len(self._operands) == len(self._on_worker):
            operands, self._operands = self._operands, {}
            sources, targets = zip(*[operands[m] for m in range(len(operands))], strict=True)
            self.communicator.run(self._collective, sources, targets)

    def on_worker(self, i: int, run: Callable[[], None], streams: Mapping[Device, Stream]) -> None:
        """Enqueue the part of participant `i` on its worker thread; `run` calls `take_part`."""
        self._on_worker[i] = True
        try:
            run()
        finally:
            self._on_worker[i] = False
        self._begun[i] += 1

    @property
    def turn(self) -> AbstractContextManager[Any]:
        """Lock of the communicator; see `Communicator.turn`."""
        return self.communicator.turn

    def is_behind(self, worker: WorkerKey) -> bool:
        """Return whether other participants were enqueued more often; see `WorkerLink`."""
        return self._begun[self.communicator.devices.index(worker)] < max(self._begun)

    def stop(self) -> None:
        """No-op: no worker blocks here."""

    def clear(self) -> None:
        """Reset the counts and drop buffers of an incomplete collective."""
        self._operands.clear()
        self._begun = [0] * len(self._begun)

    def waited(self, worker: WorkerKey) -> int:
        """Return 0: no worker blocks here."""
        return 0


__all__ = ["EnqueuedCollective"]
