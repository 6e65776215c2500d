"""Groups of devices with a vendor's collectives."""

from __future__ import annotations

from collections.abc import Sequence

import polyhal as ph
from polyhal.backends.numpy.backend import NumpyBackend, create
from polyhal.hal.collectives.collective import Collective
from polyhal.hal.collectives.communicator import Communicator
from polyhal.hal.collectives.process_group import ProcessGroup
from polyhal.hal.device import Device
from polyhal.hal.layout import Ref
from polyhal.hal.system.communicators.local import LocalCommunicator
from polyhal.parallel import Group


class VendorCommunicator(LocalCommunicator):
    """A library that counts its calls."""

    calls = 0

    def run(self, collective: Collective, sources: Sequence[Ref | None], targets: Sequence[Ref | None]) -> None:
        self.calls += 1
        super().run(collective, sources, targets)


class VendorBackend(NumpyBackend):
    """A device of the vendor, whose library supports no others."""

    def open_communicator(
        self, devices: Sequence[Device], processes: ProcessGroup | None = None
    ) -> Communicator | None:
        if processes is None and all(isinstance(d.backend, VendorBackend) for d in devices):
            return VendorCommunicator(devices)
        return None


def vendors(count: int) -> list[Device]:
    return [Device.opened(f"vendor:{i}", VendorBackend(create("").info)) for i in range(count)]


def test_the_vendors_library_is_used() -> None:
    group = Group(vendors(3))
    total = group.all_reduce([ph.full((5,), i + 1.0, device=d) for i, d in enumerate(group.devices)])
    assert [t.tolist() for t in total] == [[6.0] * 5] * 3
    assert isinstance(group.communicator, VendorCommunicator)
    assert group.communicator.calls == 1


def test_a_mixed_group_does_without_it() -> None:
    mixed = [*vendors(1), Device("numpy")]
    assert type(Group(mixed).communicator) is LocalCommunicator
    assert type(Group(mixed[::-1]).communicator) is LocalCommunicator
