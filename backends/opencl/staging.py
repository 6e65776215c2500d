"""Staging in pinned memory: page-locked host memory, from which a discrete card copies at bus bandwidth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl

from polyhal.backends.opencl.device_runtime import DeviceRuntime
from polyhal.hal.core.memory.staging_pool import StagingPool


def pinned_pool(runtime: DeviceRuntime) -> StagingPool[np.ndarray]:
    """Return a pool of pinned memory for copies to the host."""
    # Mapping is a command: on the device's queues it would wait for earlier work.
    queue = cl.CommandQueue(runtime.context, runtime.device)
    return StagingPool(lambda size: mapped_pinned_memory(runtime, size, queue))


def mapped_pinned_memory(runtime: DeviceRuntime, nbytes: int, queue: cl.CommandQueue | None = None) -> np.ndarray:
    """Allocate pinned memory and return its bytes. It is unmapped and released with the array."""
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
    buffer = cl.Buffer(runtime.context, flags, nbytes)
    access: Any = cl.map_flags.READ | cl.map_flags.WRITE
    array: Any
    # The array's base keeps the buffer alive and unmaps it when collected.
    array, _ = cl.enqueue_map_buffer(
        queue or runtime.queue, buffer, access, 0, (nbytes,), np.dtype(np.uint8), is_blocking=True
    )
    return array  # type: ignore[no-any-return]
