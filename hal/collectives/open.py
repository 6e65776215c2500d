"""The choice of a communicator for a set of devices."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from polyhal.hal.collectives.communicator import Communicator, SupportsCommunicator
from polyhal.hal.collectives.descriptors import all_agree
from polyhal.hal.collectives.hierarchical import HierarchicalCommunicator
from polyhal.hal.collectives.local import LocalCommunicator

if TYPE_CHECKING:
    from polyhal.hal.collectives.process_group import ProcessGroup
    from polyhal.hal.device import Device


_shared: weakref.WeakValueDictionary[tuple[int, ...], Communicator] = weakref.WeakValueDictionary()
"""By the identities of the devices, which a communicator keeps alive."""


def shared_communicator(devices: Sequence[Device]) -> Communicator:
    """Return a communicator among devices of this process, the same one as long as any captured step has it.

    Raises ValueError for no device, or one that is named twice.
    """
    key = tuple(map(id, devices))
    communicator = _shared.get(key)
    if communicator is None:
        communicator = _shared[key] = open_communicator(devices)
    return communicator


def open_communicator(devices: Sequence[Device], processes: ProcessGroup | None = None) -> Communicator:
    """Return a communicator among devices of this process, and of `processes`, if given: a backend's own if it serves them.

    Raises ValueError for no device, or one that is named twice, and ProcessGroupError if a process is gone.
    """
    general = LocalCommunicator(devices)
    backend = devices[0].backend
    own = backend if isinstance(backend, SupportsCommunicator) else None
    if processes is not None and all_agree(processes, own is not None):
        assert own is not None
        everyones = own.open_communicator(devices, processes)
        if everyones is not None:
            return everyones
    local = own.open_communicator(devices) if own is not None else None
    return (local or general) if processes is None else HierarchicalCommunicator(local or general, processes)
