"""Recorded launches in a buffer of the driver's own (cl_khr_command_buffer), submitted by one call.

Arguments that change are updated in the buffer (cl_khr_command_buffer_mutable_dispatch). Source: the OpenCL extension
specification, version 1.0 of the first and 0.9.3 of the second.

Whether that is faster than enqueueing the launches one by one depends on the driver, so it is measured
once for each opened device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from polyhal.backends.opencl.driver import CommandFunctions, ffi, pointer
from polyhal.hal.errors import BackendError, message

if TYPE_CHECKING:
    from polyhal.backends.opencl.arguments import Cell
    from polyhal.backends.opencl.launch import BoundLaunch
    from polyhal.backends.opencl.queues import Lane

_FLAGS, _SIMULTANEOUS_USE, _MUTABLE = 0x1293, 1 << 0, 1 << 1
_UPDATABLE_FIELDS, _ARGUMENTS = 0x12B1, 1 << 3
_DISPATCH_UPDATE = 0
_TRIALS = 5
_GAIN = 0.5
"""The part of the time of single enqueues that a command buffer may take to be preferred."""


class CommandBuffer:
    """Launches that the driver keeps. It may be submitted again while an earlier submission still runs."""

    def __init__(
        self,
        functions: CommandFunctions,
        lane: Lane,
        launches: Sequence[BoundLaunch],
        cells: Iterable[Cell],
        device: str,
    ) -> None:
        """Record for queues like that of `lane`; `cells` are the arguments that may change. Raises BackendError."""
        self._functions = functions
        self._device = device
        status = ffi.new("int *")
        properties = ffi.new("uint64_t[]", [_FLAGS, _SIMULTANEOUS_USE | _MUTABLE, 0])
        handle = functions.create(1, ffi.new("void *[]", [lane.pointer()]), properties, status)
        self._check(status[0], "creating a command buffer")
        self._handle = ffi.gc(handle, functions.release)
        changing = {c.launch: ffi.new("void *[1]") for c in cells}
        for i, b in enumerate(launches):
            self._add(b, changing.get(i))
        self._check(functions.finalize(self._handle), "finishing a command buffer")
        self._updates = {id(c): _update(c, changing[c.launch][0]) for c in cells}

    def _add(self, launch: BoundLaunch, command: Any) -> None:
        """Record one launch; `command` takes the name under which its arguments can be updated."""
        properties = ffi.NULL if command is None else ffi.new("uint64_t[]", [_UPDATABLE_FIELDS, _ARGUMENTS, 0])
        status = self._functions.add(
            self._handle,
            ffi.NULL,
            properties,
            pointer(launch.kernel),
            len(launch.items),
            ffi.NULL,
            ffi.new("size_t[]", launch.items),
            ffi.new("size_t[]", launch.group),
            0,
            ffi.NULL,
            ffi.NULL,
            ffi.NULL if command is None else command,
        )
        self._check(status, f"recording {launch.name}")

    def update(self, changed: Sequence[Cell]) -> None:
        """Take over the values of some cells for later submissions."""
        if changed:
            updates = ffi.new("void *[]", [self._updates[id(c)][0] for c in changed])
            kinds = ffi.new("unsigned int[]", [_DISPATCH_UPDATE] * len(changed))
            self._check(self._functions.update(self._handle, len(changed), kinds, updates), "updating a command buffer")

    def submit(self, lane: Lane) -> None:
        """Run all launches once on the queue of `lane`."""
        queues = ffi.new("void *[]", [lane.pointer()])
        status = self._functions.enqueue(1, queues, self._handle, 0, ffi.NULL, ffi.NULL)
        self._check(status, "submitting a command buffer")

    def _check(self, status: int, action: str) -> None:
        if status:
            raise BackendError(message(None, f"{action} failed with OpenCL status {status}", device=self._device))


def _update(cell: Cell, command: Any) -> tuple[Any, Any]:
    """The structure that updates one argument, and what it points to."""
    argument = ffi.new("argument *", {"place": cell.place, "size": cell.size, "value": cell.value})
    return ffi.new("dispatch *", {"command": command, "arguments": 1, "argument_list": argument}), argument


def is_faster(one_by_one: Callable[[], None], buffered: Callable[[], None], finish: Callable[[], None]) -> bool:
    """Whether a command buffer runs some launches clearly faster than single enqueues do, until all is done."""
    times: dict[Callable[[], None], list[float]] = {one_by_one: [], buffered: []}
    for _ in range(_TRIALS):
        for submit, found in times.items():
            finish()
            begun = time.perf_counter()
            submit()
            finish()
            found.append(time.perf_counter() - begun)
    return min(times[buffered]) < _GAIN * min(times[one_by_one])


__all__ = ["CommandBuffer", "is_faster"]
