"""The devices that campaigns run on: all of this machine, and the simulated GPU; and what a campaign leaves on them."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator

import polyhal as ph
from polyhal.hal.discovery.registry import registry

SIMULATED = "sim:teaching,memory=256MiB"


def names(backend: str = "") -> list[str]:
    """The devices of one backend; by default all, and the simulated one."""
    found = [c.name for c in registry().candidates()]
    return [n for n in found if n.partition(":")[0] == backend] if backend else [*found, SIMULATED]


def left_on(devices: Iterable[str]) -> Iterator[str]:
    """Yield what a campaign has left on its devices."""
    gc.collect()
    for name in devices:
        if used := ph.Device(name).memory_stats().used:
            yield f"{name}: {used} bytes of the pool are left"
