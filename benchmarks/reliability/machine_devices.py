"""The devices that campaigns run on: all of this machine, and the simulated GPU; and the leaks of
a campaign on them."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping

import polyhal as ph
from polyhal.hal.system.discovery.registry import registry

SIMULATED = "sim:teaching,memory=256MiB"


def names(backend: str = "") -> list[str]:
    """Return the devices of one backend; by default all, and the simulated one."""
    found = [c.name for c in registry().candidates()]
    return [n for n in found if n.partition(":")[0] == backend] if backend else [*found, SIMULATED]


def used_on(devices: Iterable[str]) -> dict[str, int]:
    """Return bytes of the pool in use on each device. Memory in use before a campaign is not its leak."""
    gc.collect()
    return {name: ph.Device(name).memory_stats().used for name in devices}


def left_on(before: Mapping[str, int]) -> Iterator[str]:
    """Yield the leaks of a campaign on its devices, given the memory in use before it."""
    for name, used in used_on(before).items():
        if used > before[name]:
            yield f"{name}: {used - before[name]} bytes of the pool are left"
