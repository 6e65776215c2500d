"""Launches of a profile: the events around each, and its facts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from polyhal.hal.launch_resources import LaunchResources

if TYPE_CHECKING:
    from polyhal.backends.common.cuda_context import PrimaryContext
    from polyhal.backends.cuda.events import NativeEvent
    from polyhal.backends.cuda.launch import PreparedLaunch

_SHARED, _PRIVATE, _REGISTERS = 1, 3, 4
"""CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, _LOCAL_SIZE_BYTES and _NUM_REGS of the CUDA driver API."""
_THREADS = 39
"""CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR of the CUDA driver API."""


class TimedCudaLaunch(NamedTuple):
    """A launch, or a copy, which has no `launch`."""

    name: str
    start: NativeEvent
    end: NativeEvent
    launch: PreparedLaunch | None
    thread: int
    """Thread that enqueued it, by `threading.get_ident`."""


def launch_resources(launches: Sequence[TimedCudaLaunch], context: PrimaryContext) -> list[LaunchResources | None]:
    """Return the facts of launches and copies. The driver is queried once per function and size of its blocks."""
    known: dict[tuple[object, int, int], LaunchResources] = {}
    facts: list[LaunchResources | None] = []
    with context:
        for _, _, _, launch, thread in launches:
            if launch is None:
                facts.append(LaunchResources(thread=thread))
                continue
            c = launch.config
            group = c.block_x, c.block_y, c.block_z
            key = launch.function, math.prod(group), c.shared_bytes
            if key not in known:
                known[key] = _resources(context, *key)
            items = c.grid_x * c.block_x, c.grid_y * c.block_y, c.grid_z * c.block_z
            facts.append(known[key]._replace(items=items, group=group, thread=thread))
    return facts


def _resources(context: PrimaryContext, function: object, threads: int, dynamic: int) -> LaunchResources:
    """Return memory, registers and occupancy of a function in blocks of a size, with `dynamic` bytes of shared memory."""
    driver = context.driver
    shared, private, registers = (
        int(driver.value("cuFuncGetAttribute", "int *", attribute, function))
        for attribute in (_SHARED, _PRIVATE, _REGISTERS)
    )
    blocks = driver.value("cuOccupancyMaxActiveBlocksPerMultiprocessor", "int *", function, threads, dynamic)
    occupancy = blocks * threads / driver.attribute(_THREADS, context.device)
    return LaunchResources(local_memory=shared + dynamic, registers=registers, spilled=private, occupancy=occupancy)
