"""Who made what lies in a device's memory: an observer that notes for each result the op's module and line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from polyhal.hal.checks.modes import observing
from polyhal.hal.checks.observer import ObservedCall
from polyhal.hal.checks.scoped import scoped
from polyhal.hal.memory.pool import bucket
from polyhal.hal.settings.state import settings

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.dispatch.location import SourceLocation

ELSEWHERE = "(copies from the host, and captured steps)"
"""What is shown for memory that no observed op made as a block of its own."""


class MemoryHistory:
    """Notes the location of the op that wrote to each block last."""

    def __init__(self) -> None:
        self._writers: dict[int, tuple[int, SourceLocation]] = {}
        """Size of the result and location of the op, by the identity of the handle."""

    @contextmanager
    def observe(self, call: ObservedCall) -> Iterator[None]:
        """Note the blocks of a call's results."""
        yield
        for out in call.outputs:
            if out.size:
                self._writers[id(out.handle)] = bucket(out.spec.nbytes), call.locate()

    def by_module(self, device: Device) -> list[tuple[str, int, int]]:
        """Module, bytes and blocks of what is in use on a device, the largest first; lines where there is no module."""
        totals: dict[str, tuple[int, int]] = {}
        for handle, size in device.pool.live_blocks():
            written, location = self._writers.get(id(handle), (0, None))
            # Values of captured steps share blocks.
            name = ELSEWHERE if location is None or written != size else _name(location)
            nbytes, blocks = totals.get(name, (0, 0))
            totals[name] = nbytes + size, blocks + 1
        return sorted(((n, *t) for n, t in totals.items()), key=lambda row: -row[1])


def _name(location: SourceLocation) -> str:
    name = location.module or location.text or "(an unknown line)"
    return f"{name}, gradient" if location.gradient_of else name


@contextmanager
def record_memory_history() -> Iterator[None]:
    """Note in the block which module made each tensor, for `polyhal.memory_summary`.

    Ops of all threads are noted, modules are named in this one. Captured steps run call by call meanwhile. Raises CaptureError
    while a step is recorded.
    """
    from polyhal.hal import dispatch

    dispatch.thread.executor.require_execution(
        "record_memory_history", "memory is only planned while a step is recorded", fix="use step.memory_report"
    )
    with scoped(), observing(MemoryHistory()):
        yield


def history() -> MemoryHistory | None:
    """The history that is being recorded, if one is."""
    return next((o for o in settings.observers if isinstance(o, MemoryHistory)), None)
