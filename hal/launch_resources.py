"""Facts of launches that a backend with timestamps may report: sizes, registers and local memory, for `polyhal.profile`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable


class LaunchResources(NamedTuple):
    """Resources of one launch, or of a copy, which has no items. None stands for a number that the driver does not report."""

    items: tuple[int, ...] = ()
    """Work-items in each direction."""
    group: tuple[int, ...] | None = None
    """Work-items of a group in each direction; None if the driver chose them."""
    local_memory: int | None = None
    """Bytes of local memory of a group."""
    registers: int | None = None
    """Registers of a work-item."""
    spilled: int | None = None
    """Bytes of private memory of a work-item: arrays, and registers that were spilled."""
    occupancy: float | None = None
    """Work-items that a compute unit holds at the same time, as a fraction of its maximum."""
    thread: int | None = None
    """Thread that enqueued it, by `threading.get_ident`; None if the backend does not record it."""


@runtime_checkable
class SupportsLaunchResources(Protocol):
    """A backend with `SupportsProfiling` whose launches are counted and described. Called by `polyhal.profile`."""

    def profiled_launches(self) -> int:
        """Return the number of launches since `start_profiling`, as `stop_profiling` would list them. Does not wait."""

    def launch_resources(self) -> Sequence[LaunchResources | None]:
        """Return the facts of these launches in order, None where nothing is known. Called before `stop_profiling`."""


__all__ = ["LaunchResources", "SupportsLaunchResources"]
