"""Command buffers of the driver (cl_khr_command_buffer): recorded launches that are submitted by one call.

Changed arguments are updated inside the buffer (cl_khr_command_buffer_mutable_dispatch). Source: the OpenCL extension
specification, cl_khr_command_buffer 1.0 and cl_khr_command_buffer_mutable_dispatch 0.9.3.

Some drivers submit a buffer no faster than its launches one by one, so both forms are timed once per opened device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from polyhal.backends.opencl.driver import CommandBufferFunctions, ffi, pointer

if TYPE_CHECKING:
    from polyhal.backends.opencl.arguments import Cell
    from polyhal.backends.opencl.error_mapping import DriverErrors
    from polyhal.backends.opencl.launch import BoundLaunch
    from polyhal.backends.opencl.queues import CommandQueue

_FLAGS, _SIMULTANEOUS_USE, _MUTABLE = 0x1293, 1 << 0, 1 << 1
_UPDATABLE_FIELDS, _ARGUMENTS = 0x12B1, 1 << 3
_DISPATCH_UPDATE = 0
_TRIALS = 5
_WORTHWHILE = 0.5
"""Maximum time of a command buffer, as a fraction of the time of single enqueues, for which it is preferred."""


class KhrCommandBuffer:
    """Launches recorded by the driver. They may be submitted again while an earlier submission is still in flight."""

    def __init__(
        self,
        functions: CommandBufferFunctions,
        queue: CommandQueue,
        launches: Sequence[BoundLaunch],
        cells: Iterable[Cell],
        errors: DriverErrors,
    ) -> None:
        """Record `launches` for queues like `queue`. `cells` are the arguments that may change. Raises BackendError."""
        self._functions = functions
        self._errors = errors
        status = ffi.new("int *")
        properties = ffi.new("uint64_t[]", [_FLAGS, _SIMULTANEOUS_USE | _MUTABLE, 0])
        handle = functions.create(1, ffi.new("void *[]", [queue.pointer()]), properties, status)
        self._check(status[0], "creating a command buffer")
        self._handle = ffi.gc(handle, functions.release)
        mutable = {c.launch: ffi.new("void *[1]") for c in cells}
        for i, launch in enumerate(launches):
            self._add(launch, mutable.get(i))
        self._check(functions.finalize(self._handle), "finalizing a command buffer")
        self._updates = {id(c): _update(c, mutable[c.launch][0]) for c in cells}

    def _add(self, launch: BoundLaunch, command: Any) -> None:
        """Record one launch. `command`, if given, receives the handle by which its arguments can be updated."""
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
        """Use the current values of some arguments in later submissions."""
        if changed:
            updates = ffi.new("void *[]", [self._updates[id(c)][0] for c in changed])
            kinds = ffi.new("unsigned int[]", [_DISPATCH_UPDATE] * len(changed))
            self._check(self._functions.update(self._handle, len(changed), kinds, updates), "updating a command buffer")

    def submit(self, queue: CommandQueue) -> None:
        """Enqueue all launches once."""
        queues = ffi.new("void *[]", [queue.pointer()])
        status = self._functions.enqueue(1, queues, self._handle, 0, ffi.NULL, ffi.NULL)
        self._check(status, "submitting a command buffer")

    def _check(self, status: int, action: str) -> None:
        if status:
            raise self._errors.from_status(status, action)


def _update(cell: Cell, command: Any) -> tuple[Any, Any]:
    """Return the structure that updates one argument, and the memory that it points to."""
    argument = ffi.new("argument *", {"place": cell.place, "size": cell.size, "value": cell.value})
    return ffi.new("dispatch *", {"command": command, "arguments": 1, "argument_list": argument}), argument


def is_faster(one_by_one: Callable[[], None], buffered: Callable[[], None], finish: Callable[[], None]) -> bool:
    """Return whether a command buffer runs some launches clearly faster than single enqueues, including the wait."""
    times: dict[Callable[[], None], list[float]] = {one_by_one: [], buffered: []}
    for _ in range(_TRIALS):
        for submit, seconds in times.items():
            finish()
            start = time.perf_counter()
            submit()
            finish()
            seconds.append(time.perf_counter() - start)
    return min(times[buffered]) < _WORTHWHILE * min(times[one_by_one])


__all__ = ["KhrCommandBuffer", "is_faster"]
