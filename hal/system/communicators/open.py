"""Choice of a communicator for a set of devices."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from polyhal.hal.collectives.communicator import Communicator, SupportsCommunicator
from polyhal.hal.system.communicators.descriptors import all_agree
from polyhal.hal.system.communicators.hierarchical import HierarchicalCommunicator
from polyhal.hal.system.communicators.local import LocalCommunicator

if TYPE_CHECKING:
    from polyhal.hal.collectives.process_group import ProcessGroup
    from polyhal.hal.device import Device


_shared: weakref.WeakValueDictionary[tuple[int, ...], Communicator] = weakref.WeakValueDictionary()
"""Communicators by the identities of their devices, which a communicator keeps alive."""


def shared_communicator(devices: Sequence[Device]) -> Communicator:
    """Return a communicator among devices of this process, shared with all captured steps that use it.

    Raises ValueError for no or repeated devices.
    """
    key = tuple(map(id, devices))
    communicator = _shared.get(key)
    if communicator is None:
        communicator = _shared[key] = open_communicator(devices)
    return communicator


def open_communicator(devices: Sequence[Device], processes: ProcessGroup | None = None) -> Communicator:
    """Return a communicator among devices of this process, and of `processes`, if given.

    It is the backend's own if that supports all devices. Raises ValueError for no or repeated devices, and ProcessGroupError if
    a process is gone.
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
