"""Staging memory of the host for values on their way from one device to another."""

from __future__ import annotations

import functools
import os
import weakref
from typing import TYPE_CHECKING, cast

import numpy as np

from polyhal.hal.memory.staging_pool import StagingPool
from polyhal.hal.protocol import Feature, SupportsPinnedMemory

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_MOST_IDLE = 1 << 28
"""Bytes that are kept for later transfers. Locking pages takes as long as several copies to them."""

Staging = StagingPool[memoryview]


def staging_for(*devices: Device) -> Staging:
    """Memory that is page-locked for the first of the devices that is a discrete card; ordinary memory if none is.

    Name targets before the source: a target would have to stage other memory first, whereas a source reads into other memory
    through memory of its own.
    """
    for device in devices:
        if Feature.PINNED_MEMORY in device.features and not device.capabilities.unified_memory:
            pools = _pinned(os.getpid())
            if device not in pools:
                pools[device] = StagingPool(cast(SupportsPinnedMemory, device.backend).allocate_pinned, _MOST_IDLE)
            return pools[device]
    return _ordinary(os.getpid())


@functools.lru_cache(maxsize=1)
def _pinned(pid: int) -> weakref.WeakKeyDictionary[Device, Staging]:
    """Page-locked memory by device, for each process: a forked child must not touch that of its parent's drivers."""
    return weakref.WeakKeyDictionary()


@functools.lru_cache(maxsize=1)
def _ordinary(pid: int) -> Staging:
    return StagingPool(lambda nbytes: np.empty(nbytes, np.uint8).data, _MOST_IDLE)
