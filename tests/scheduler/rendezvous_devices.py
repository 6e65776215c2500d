"""Devices in NumPy whose collectives are in line: a device waits in the midst of its work until all others have come."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from polyhal.backends.numpy.backend import NumpyBackend, create
from polyhal.hal.collectives.collective import Collective
from polyhal.hal.collectives.communicator import Communicator
from polyhal.hal.collectives.local import LocalCommunicator
from polyhal.hal.collectives.process_group import ProcessGroup
from polyhal.hal.device import Device
from polyhal.hal.layout import Ref

from .worker_devices import SECONDS


class RendezvousCommunicator(LocalCommunicator):
    """Members meet at a barrier; the last one to come carries the collective out."""

    on_compute_stream = True

    def __init__(self, devices: Sequence[Device]) -> None:
        super().__init__(devices)
        self.turn = threading.RLock()
        self.met: list[Collective] = []
        """The collectives in which members took part on their own, one after the other."""
        self._came: dict[int, tuple[Collective, Ref | None, Ref | None]] = {}
        self._barrier = threading.Barrier(len(devices), self._together)

    def run_member(self, i: int, collective: Collective, source: Ref | None, target: Ref | None) -> None:
        self._came[i] = collective, source, target
        self._barrier.wait(SECONDS)

    def _together(self) -> None:
        (collective,) = {c for c, _, _ in self._came.values()}
        came = [self._came[i] for i in range(len(self.devices))]
        self.run(collective, [s for _, s, _ in came], [t for _, _, t in came])
        self.met.append(collective)
        self._came.clear()


class RendezvousBackend(NumpyBackend):
    """A device with this kind of collectives, among its like."""

    def open_communicator(self, devices: Sequence[Device], processes: ProcessGroup | None = None) -> Communicator | None:
        alike = processes is None and all(isinstance(d.backend, RendezvousBackend) for d in devices)
        return RendezvousCommunicator(devices) if alike and len(devices) > 1 else None


def meeting(count: int) -> list[Device]:
    """Return so many devices of the kind."""
    info = create("").info
    return [Device.opened(f"meeting:{i}", RendezvousBackend(replace(info, id=f"meeting:{i}"))) for i in range(count)]
