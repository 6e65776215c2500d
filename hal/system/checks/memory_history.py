"""Origins of the values in a device's memory: an observer that records the op's module and line for each result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch.observer import ObservedCall
from polyhal.hal.core.memory.pool import bucket
from polyhal.hal.core.settings.state import settings
from polyhal.hal.ops.top_level import top_level
from polyhal.hal.system.checks.modes import observing
from polyhal.hal.system.checks.scoped import scoped

if TYPE_CHECKING:
    from polyhal.hal.core.execution.location import SourceLocation
    from polyhal.hal.device import Device

ELSEWHERE = "(copies from the host, and captured steps)"
"""Label of memory that is not a separate block written by an observed op."""


class MemoryHistory:
    """Records the location of the last op that wrote to each block."""

    def __init__(self) -> None:
        self._writers: dict[int, tuple[int, SourceLocation]] = {}
        """Size of the result and location of the op, by the identity of the handle."""

    @contextmanager
    def observe(self, call: ObservedCall) -> Iterator[None]:
        """Record the blocks of a call's results."""
        yield
        for out in call.outputs:
            if out.size:
                self._writers[id(out.handle)] = bucket(out.spec.nbytes), call.locate()

    def by_module(self, device: Device) -> list[tuple[str, int, int]]:
        """Return module (or line, without a module), bytes and number of blocks in use on a device, the largest first."""
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


@top_level
@contextmanager
def record_memory_history() -> Iterator[None]:
    """Record inside the block which module produced each tensor, for `polyhal.memory_summary`.

    Ops of all threads are recorded; modules are only named in this thread. Captured steps run call by call inside the
    block. Raises CaptureError while a step is recorded.
    """
    dispatch.require_execution(
        "record_memory_history", "memory is only planned while a step is recorded", fix="use step.memory_report"
    )
    with scoped(), observing(MemoryHistory()):
        yield


def history() -> MemoryHistory | None:
    """Return the history being recorded; None if there is none."""
    return next((o for o in settings.observers if isinstance(o, MemoryHistory)), None)
