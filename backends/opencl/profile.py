"""Launches of a profile: their events, and the facts of each."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyopencl as cl

from polyhal.hal.launch_resources import LaunchResources


class TimedEnqueue(NamedTuple):
    """A launch, or a copy, which has no kernel."""

    name: str
    event: cl.Event
    thread: int
    """Thread that enqueued it, by `threading.get_ident`."""
    kernel: cl.Kernel | None = None
    items: tuple[int, ...] = ()
    group: tuple[int, ...] | None = None


def launch_resources(launches: list[TimedEnqueue], device: cl.Device) -> list[LaunchResources | None]:
    """Return the facts of launches and copies. The driver is asked once per kernel."""
    known: dict[int, tuple[int | None, int | None]] = {}
    facts: list[LaunchResources | None] = []
    for launch in launches:
        kernel = launch.kernel
        if kernel is None:
            facts.append(LaunchResources(thread=launch.thread))
            continue
        if (key := kernel.int_ptr) not in known:
            known[key] = (
                _queried(kernel, device, cl.kernel_work_group_info.LOCAL_MEM_SIZE),
                _queried(kernel, device, cl.kernel_work_group_info.PRIVATE_MEM_SIZE),
            )
        local, private = known[key]
        facts.append(LaunchResources(launch.items, launch.group, local, spilled=private, thread=launch.thread))
    return facts


def _queried(kernel: cl.Kernel, device: cl.Device, fact: int) -> int | None:
    try:
        found: Any = kernel.get_work_group_info(fact, device)
        return int(found)
    except cl.Error:  # drivers need not know it
        return None
