"""Host staging memory for values in flight from one device to another."""

from __future__ import annotations

import functools
import os
import weakref
from typing import TYPE_CHECKING, cast

import numpy as np

from polyhal.hal.core.memory.staging_pool import StagingPool
from polyhal.hal.protocol import Feature, SupportsPinnedMemory

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_MOST_IDLE = 1 << 28
"""Maximum idle bytes that are kept for later transfers. Locking pages takes as long as several copies to them."""

Staging = StagingPool[memoryview]


def staging_for(*devices: Device) -> Staging:
    """Return staging memory that is page-locked for the first discrete device; pageable memory if none is discrete.

    Pass targets before the source: a target would have to stage pageable memory first, whereas a source reads into pageable
    memory through a staging buffer of its own.
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
    """Return the page-locked pools of this process by device: a forked child must not touch memory of its parent's drivers."""
    return weakref.WeakKeyDictionary()


@functools.lru_cache(maxsize=1)
def _ordinary(pid: int) -> Staging:
    return StagingPool(lambda nbytes: np.empty(nbytes, np.uint8).data, _MOST_IDLE)
