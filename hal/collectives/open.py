"""The choice of a communicator for a set of devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from polyhal.hal.collectives.communicator import SupportsCommunicator
from polyhal.hal.collectives.hierarchical import HierarchicalCommunicator
from polyhal.hal.collectives.local import LocalCommunicator

if TYPE_CHECKING:
    from polyhal.hal.collectives.communicator import Communicator
    from polyhal.hal.collectives.process_group import ProcessGroup
    from polyhal.hal.device import Device


def open_communicator(devices: Sequence[Device], processes: ProcessGroup | None = None) -> Communicator:
    """Return a communicator among devices of this process, a vendor's if it serves all of them, and of `processes`, if given.

    Raises ValueError for no device, or one that is named twice, and ProcessGroupError if a process is gone.
    """
    general = LocalCommunicator(devices)
    backend = devices[0].backend
    vendors = backend.open_communicator(devices) if isinstance(backend, SupportsCommunicator) else None
    local = vendors or general
    return local if processes is None else HierarchicalCommunicator(local, processes)
