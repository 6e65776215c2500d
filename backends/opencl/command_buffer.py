"""Launches kept and submitted again: kernel objects of their own with their arguments set, enqueued by the bare driver call.

Only arguments that differ from the last run's are set again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyopencl as cl

from polyhal.backends.opencl import error_mapping
from polyhal.backends.opencl.arguments import Cell, Changes
from polyhal.backends.opencl.driver import ffi, pointer
from polyhal.backends.opencl.khr_command_buffer import CommandBuffer, is_faster
from polyhal.backends.opencl.lowering.pointwise import copy
from polyhal.hal import dtypes
from polyhal.hal.errors import BackendError, message
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.protocol import RecordedLaunch

if TYPE_CHECKING:
    from polyhal.backends.opencl.launch import BoundLaunch
    from polyhal.backends.opencl.runtime import Runtime
    from polyhal.hal.protocol import BindingSlot

_SAMPLE = 32
"""Launches by which command buffers are compared with single enqueues."""


class Recorder:
    """Takes the launches of one thread while it records; other threads go on launching."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self.launches: list[BoundLaunch] = []

    def accepts(self) -> bool:
        """Whether the launches of the current thread are recorded."""
        return threading.get_ident() == self._thread

    def add(self, launch: BoundLaunch) -> None:
        self.launches.append(launch)


def record(runtime: Runtime, calls: Sequence[Callable[[], None]]) -> RecordedLaunches:
    """Keep what `calls` launch. Satisfies `polyhal.hal.protocol.SupportsCommandBuffers`."""
    return record_as(runtime, calls, buffered=prefers_buffers(runtime))


def record_as(runtime: Runtime, calls: Sequence[Callable[[], None]], *, buffered: bool) -> RecordedLaunches:
    """Keep what `calls` launch in the given form; a command buffer only where the device has them."""
    origins: list[int] = []
    recorder = runtime.recorder = Recorder()
    try:
        for number, call in enumerate(calls):
            call()
            origins += [number] * (len(recorder.launches) - len(origins))
    finally:
        runtime.recorder = None
    return RecordedLaunches(runtime, recorder.launches, origins, buffered=buffered)


class RecordedLaunches:
    """A flat list of enqueues, or a command buffer where that is faster. Satisfies `polyhal.hal.protocol.CommandBuffer`."""

    def __init__(
        self, runtime: Runtime, launches: Sequence[BoundLaunch], origins: Sequence[int], *, buffered: bool
    ) -> None:
        """`origins` says which call each launch comes from."""
        self._runtime = runtime
        self.bound = tuple(launches)
        self.launches = tuple(RecordedLaunch(i, b.name) for i, b in zip(origins, launches, strict=True))
        self._changes = Changes(launches)
        calls = [
            (pointer(b.kernel), len(b.items), ffi.new("size_t[]", b.items), ffi.new("size_t[]", b.group))
            for b in launches
        ]
        size = runtime.lanes.batch
        self._batches = [calls[i : i + size] for i in range(0, len(calls), size)]
        self._buffer: CommandBuffer | None = None
        functions = runtime.driver.commands
        if buffered and functions is not None:
            lane = runtime.lanes.current()
            self._buffer = CommandBuffer(functions, lane, launches, self._changes.cells, runtime.info.name)

    def submit(self, rebound: Collection[BindingSlot]) -> None:
        """Submit all launches, after setting the arguments that changed."""
        runtime = self._runtime
        changed = self._changes.take(rebound)
        if self._buffer is None:
            self._set(changed)
        else:
            self._buffer.update(changed)
        if runtime.profile is not None:
            self._replay_profiled(runtime.profile)
            return
        lane = runtime.lanes.current()
        if self._buffer is not None:
            self._buffer.submit(lane)
            lane.launched(len(self.bound))
            return
        enqueue, queue, null = runtime.driver.enqueue, lane.pointer(), ffi.NULL
        for batch in self._batches:
            for kernel, dimensions, items, group in batch:
                status = enqueue(queue, kernel, dimensions, null, items, group, 0, null, null)
                if status:
                    raise self._failed(status, kernel)
            lane.launched(len(batch))

    def _set(self, cells: Sequence[Cell]) -> None:
        """Give the kernel objects the values of some cells."""
        set_argument = self._runtime.driver.set_argument
        for cell in cells:
            status = set_argument(cell.kernel, cell.place, cell.size, cell.value)
            if status:
                name = self.bound[cell.launch].name
                text = f"argument {cell.place} of {name} was refused with OpenCL status {status}"
                raise BackendError(message(None, text, device=self._runtime.info.name))

    def _replay_profiled(self, profile: list[tuple[str, cl.Event]]) -> None:
        """Enqueue each launch with an event."""
        if self._buffer is not None:
            self._set(self._changes.cells)
        queue = self._runtime.queue
        for b in self.bound:
            profile.append((b.name, cl.enqueue_nd_range_kernel(queue, b.kernel, b.items, b.group)))

    def _failed(self, status: int, kernel: Any) -> Exception:
        """The typed error of a failed enqueue, which pyopencl makes by trying the launch once more."""
        b = next(b for b in self.bound if pointer(b.kernel) == kernel)
        action = f"launching {b.name} over {b.items} in groups of {b.group}"
        try:
            cl.enqueue_nd_range_kernel(self._runtime.queue, b.kernel, b.items, b.group)
        except cl.Error as error:
            return error_mapping.translate(error, action, self._runtime.info.name)
        return BackendError(
            message(None, f"{action} failed with OpenCL status {status}", device=self._runtime.info.name)
        )


def prefers_buffers(runtime: Runtime) -> bool:
    """Whether command buffers pay on a device: measured with small kernels when first asked, where there are any."""
    if runtime.prefers_buffers is None:
        runtime.prefers_buffers = runtime.driver.commands is not None and _buffers_are_faster(runtime)
    return runtime.prefers_buffers


def _buffers_are_faster(runtime: Runtime) -> bool:
    spec = contiguous(dtypes.float32, (64,))
    memory = cl.Buffer(runtime.context, cl.mem_flags.READ_WRITE, spec.nbytes)
    fill, target = copy.fill(runtime, spec), Ref(memory, spec, 0)
    calls = [partial(fill, 0.0, target)] * _SAMPLE
    one_by_one, buffered = (record_as(runtime, calls, buffered=b) for b in (False, True))
    return is_faster(lambda: one_by_one.submit(()), lambda: buffered.submit(()), runtime.finish)
