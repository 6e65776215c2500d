"""Blocks of device memory for the arenas of a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.scheduler.arena import plan_arena
from polyhal.hal.compile.scheduler.plan import Arena, Owner
from polyhal.hal.errors import OutOfMemoryError

if TYPE_CHECKING:
    from polyhal.hal.core.memory.buffer import Buffer
    from polyhal.hal.device import Device

_KEPT_FREE = 1 << 20
"""Maximum bytes of free pool blocks that are kept before an arena is allocated."""


def allocate_blocks(arenas: Mapping[Device, Arena], blocks: dict[Device, list[Buffer]]) -> dict[Owner, tuple[Any, int]]:
    """Allocate the arenas in `blocks`. Returns the handle, and the offset in bytes, of everything in them.

    Raises OutOfMemoryError.
    """
    places: dict[Owner, tuple[Any, int]] = {}
    for device, arena in arenas.items():
        # The pool still caches blocks that eager runs freed before the recording. No replay uses them.
        if device.pool.reserved - device.pool.used > _KEPT_FREE:
            device.pool.drain()
        buffers = blocks[device] = _take_blocks(device, arena)
        for owner, (block, offset) in zip(arena.owners, arena.layout.locations, strict=True):
            places[owner] = buffers[block].handle, offset
    return places


def _take_blocks(device: Device, arena: Arena) -> list[Buffer]:
    """Allocate the blocks of an arena. If device memory is fragmented, halve the block size, down to the largest tensor.

    Raises OutOfMemoryError.
    """
    largest = max((i.nbytes for i in arena.intervals), default=0)
    while True:
        try:
            return [device.pool.take_exactly(n) for n in arena.layout.blocks]
        except OutOfMemoryError as error:
            refused = error.with_traceback(None)  # the frames hold blocks
        limit = max(arena.layout.blocks) // 2
        if limit < largest or not device.capabilities.suballocation or arena.layout.nbytes > device.pool.available:
            raise refused
        del (
            refused
        )  # a reference cycle: the tracebacks of its causes reference this frame, which keeps the recording alive
        arena.layout = plan_arena(arena.intervals, limit)
