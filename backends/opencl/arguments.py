"""Kernel arguments that may change between replays of a recording: live numbers and rebindable memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.launching.runtime_scalars import Numbers
from polyhal.backends.common.launching.scalar_conversion import CONVERTERS
from polyhal.backends.opencl.driver import ffi, pointer

if TYPE_CHECKING:
    from polyhal.backends.opencl.launch import BoundLaunch
    from polyhal.hal.protocol import BindingSlot

_TYPES = {
    "int": "int32_t",
    "uint": "uint32_t",
    "long": "int64_t",
    "ulong": "uint64_t",
    "float": "float",
    "double": "double",
    "memory": "void *",
}


class Cell:
    """One argument of one launch, stored in C memory that the driver reads."""

    __slots__ = ("convert", "kernel", "launch", "place", "size", "value")

    def __init__(self, launch: int, kernel: Any, place: int, kind: str) -> None:
        self.launch = launch
        self.kernel = kernel
        self.place = place
        self.value = ffi.new(f"{_TYPES[kind]}[1]")
        self.size = ffi.sizeof(_TYPES[kind])
        self.convert: Callable[[Any], Any] = CONVERTERS.get(kind, _itself)


class Changes:
    """The arguments of a list of launches that may change between replays."""

    def __init__(self, launches: Sequence[BoundLaunch]) -> None:
        self._followers: dict[BindingSlot, list[_Follower]] = {}
        self._numbers: Numbers[Cell] = Numbers()
        self._changed: list[Cell] = []
        """Updated cells that `take` has not returned, because a number did not fit its type."""
        for i, b in enumerate(launches):
            kernel = pointer(b.kernel)
            for place, movable, offset in b.movables:
                cells = Cell(i, kernel, place, "memory"), Cell(i, kernel, place + 1, "ulong")
                self._followers.setdefault(movable, []).append(_Follower(b.values, *cells, offset))
            for place, live, kind in b.numbers:
                self._numbers.follow(live, Cell(i, kernel, place, kind))

        self.follow_numbers = bool(self._numbers)
        """True if arguments may change without memory that moves."""

    @property
    def cells(self) -> list[Cell]:
        """Cells of all arguments that may change."""
        memory = [c for found in self._followers.values() for f in found for c in (f.handle, f.offset)]
        return [*memory, *self._numbers]

    def take(self, moved: Collection[BindingSlot]) -> list[Cell]:
        """Update and return the cells that changed since the last replay: memory in `moved` and numbers."""
        changed = self._changed
        for movable in moved:
            found = self._followers.get(movable)
            if found:
                handle = pointer(movable.handle)
                for f in found:
                    f.values[f.handle.place] = movable.handle
                    f.handle.value[0] = handle
                    f.offset.value[0] = movable.offset + f.start
                    changed += (f.handle, f.offset)
        for value, cells in self._numbers.changed():
            for cell in cells:
                cell.value[0] = cell.convert(value)
            changed += cells
        self._changed = []
        return changed


@dataclass(slots=True)
class _Follower:
    """The two kernel arguments of a rebindable operand: buffer handle and offset."""

    values: list[Any]
    """The launch's argument values, which keep buffers alive: a kernel object holds no reference."""
    handle: Cell
    offset: Cell
    start: int
    """Offset of the operand from the start of the rebindable memory, in elements."""


def _itself(value: Any) -> Any:
    return value
