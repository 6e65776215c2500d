"""Collectives in command buffers: a device submits its parts of several collectives together with its kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.scheduler.enqueue_collectives import EnqueuedCollective
from polyhal.hal.core.transfers.worker_link import WorkerKey

if TYPE_CHECKING:
    from polyhal.hal.device import Device


class RecordedCollectives:
    """The collectives of one command buffer."""

    def __init__(self, device: Device, links: Sequence[EnqueuedCollective]) -> None:
        """`device` records its parts of the collectives `links`."""
        self._device = device
        self._links = links
        self._communicators = list({id(x.communicator): x.communicator for x in links}.values())

    def submit(self, run: Callable[[], None]) -> None:
        """Submit the command buffer by `run`, after earlier collectives of the device on any stream."""
        with ExitStack() as stack:
            for communicator in self._communicators:
                stack.enter_context(communicator.submitting(communicator.devices.index(self._device)))
            run()
        for link in self._links:
            link.begin(self._device)

    @property
    def turn(self) -> AbstractContextManager[Any]:
        """Lock of the communicators; see `Communicator.turn`."""
        return self._links[0].turn

    def is_behind(self, worker: WorkerKey) -> bool:
        """Return whether other participants of any collective were enqueued more often; see `WorkerLink`."""
        return worker is self._device and any(link.is_behind(worker) for link in self._links)

    def stop(self) -> None:
        """No-op: no worker blocks here."""

    def clear(self) -> None:
        """Reset the counts."""
        for link in self._links:
            link.clear()

    def waited(self, worker: WorkerKey) -> int:
        """Return 0: no worker blocks here."""
        return 0
