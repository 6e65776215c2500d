"""NumPy devices with collectives on compute streams: a device blocks in a collective until all others have reached it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from polyhal.backends.numpy.backend import NumpyBackend, create
from polyhal.hal.collectives.collective import Collective
from polyhal.hal.collectives.communicator import Communicator
from polyhal.hal.collectives.process_group import ProcessGroup
from polyhal.hal.device import Device
from polyhal.hal.layout import Ref
from polyhal.hal.system.communicators.local import LocalCommunicator

from .worker_devices import SECONDS


class RendezvousCommunicator(LocalCommunicator):
    """Communicator with a barrier as rendezvous; the last participant runs the collective."""

    on_compute_stream = True

    def __init__(self, devices: Sequence[Device]) -> None:
        super().__init__(devices)
        self.turn = threading.RLock()
        self.completed: list[Collective] = []
        """Collectives that were run by one `run_member` call per participant, in order."""
        self._arrived: dict[int, tuple[Collective, Ref | None, Ref | None]] = {}
        self._barrier = threading.Barrier(len(devices), self._run_all)

    def run_member(self, i: int, collective: Collective, source: Ref | None, target: Ref | None) -> None:
        self._arrived[i] = collective, source, target
        self._barrier.wait(SECONDS)

    def _run_all(self) -> None:
        (collective,) = {c for c, _, _ in self._arrived.values()}
        arrived = [self._arrived[i] for i in range(len(self.devices))]
        self.run(collective, [s for _, s, _ in arrived], [t for _, _, t in arrived])
        self.completed.append(collective)
        self._arrived.clear()


class RendezvousBackend(NumpyBackend):
    """Backend that opens a RendezvousCommunicator among devices of its kind."""

    def open_communicator(
        self, devices: Sequence[Device], processes: ProcessGroup | None = None
    ) -> Communicator | None:
        supported = processes is None and all(isinstance(d.backend, RendezvousBackend) for d in devices)
        return RendezvousCommunicator(devices) if supported and len(devices) > 1 else None


def rendezvous_devices(count: int) -> list[Device]:
    """Return `count` devices with rendezvous collectives."""
    info = create("").info
    return [Device.opened(f"meeting:{i}", RendezvousBackend(replace(info, id=f"meeting:{i}"))) for i in range(count)]
