"""Launches of a profile: the events around each, and its facts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from polyhal.hal.launch_resources import LaunchResources

if TYPE_CHECKING:
    from polyhal.backends.common.cuda_context import PrimaryContext
    from polyhal.backends.cuda.events import NativeEvent
    from polyhal.backends.cuda.launch import PreparedLaunch

_SHARED, _PRIVATE, _REGISTERS = 1, 3, 4
"""CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, _LOCAL_SIZE_BYTES and _NUM_REGS of the CUDA driver API."""


class TimedCudaLaunch(NamedTuple):
    """A launch, or a copy, which has no `launch`."""

    name: str
    start: NativeEvent
    end: NativeEvent
    launch: PreparedLaunch | None


def launch_resources(launches: Sequence[TimedCudaLaunch], context: PrimaryContext) -> list[LaunchResources | None]:
    """Return the facts of launches, None for copies. The driver is asked once per kernel."""
    known: dict[str, tuple[int, int, int]] = {}
    facts: list[LaunchResources | None] = []
    with context:
        for name, _, _, launch in launches:
            if launch is None:
                facts.append(None)
                continue
            if name not in known:
                shared, private, registers = (
                    int(context.driver.value("cuFuncGetAttribute", "int *", attribute, launch.function))
                    for attribute in (_SHARED, _PRIVATE, _REGISTERS)
                )
                known[name] = shared, private, registers
            shared, private, registers = known[name]
            c = launch.config
            group = c.block_x, c.block_y, c.block_z
            items = c.grid_x * c.block_x, c.grid_y * c.block_y, c.grid_z * c.block_z
            facts.append(LaunchResources(items, group, shared + c.shared_bytes, registers, private))
    return facts
