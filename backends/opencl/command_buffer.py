"""Command buffers: recorded launches, each with its own kernel object, enqueued by direct driver calls.

The arguments of each kernel object stay set. A submission sets only arguments that changed since the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

import pyopencl as cl

from polyhal.backends.common.launching.launch_recorder import record_launches
from polyhal.backends.opencl.arguments import Cell, Changes
from polyhal.backends.opencl.driver import ffi, pointer
from polyhal.backends.opencl.khr_command_buffer import KhrCommandBuffer, is_faster
from polyhal.backends.opencl.launch_description import described
from polyhal.backends.opencl.profile import TimedEnqueue
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.hal import dtypes
from polyhal.hal.launch_descriptions import DescribedLaunch
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.protocol import RecordedLaunch

if TYPE_CHECKING:
    from polyhal.backends.opencl.device_runtime import DeviceRuntime
    from polyhal.backends.opencl.launch import BoundLaunch
    from polyhal.hal.protocol import BindingSlot

_SAMPLE = 32
"""Number of launches that are timed to compare the driver's command buffers with single enqueues."""


def record(runtime: DeviceRuntime, calls: Sequence[Callable[[], None]]) -> OpenCLCommandBuffer:
    """Record the launches of `calls`, in the form that is faster on this device."""
    return record_as(runtime, calls, buffered=prefers_khr_buffers(runtime))


def record_as(runtime: DeviceRuntime, calls: Sequence[Callable[[], None]], *, buffered: bool) -> OpenCLCommandBuffer:
    """Record the launches of `calls`, in a command buffer of the driver if `buffered` and the driver has them."""
    return OpenCLCommandBuffer(runtime, *record_launches(runtime, calls), buffered=buffered)


class OpenCLCommandBuffer:
    """A flat list of enqueues, or a buffer of the driver. Implements `polyhal.hal.protocol.CommandBuffer`."""

    def __init__(
        self,
        runtime: DeviceRuntime,
        launches: Sequence[BoundLaunch],
        origins: Sequence[int],
        kept: Sequence[object] = (),
        *,
        buffered: bool,
    ) -> None:
        """`origins` has the position of each launch's call; `kept` is referenced as long as the buffer."""
        self._runtime = runtime
        self._kept = kept
        self.bound = tuple(launches)
        self.launches = tuple(RecordedLaunch(i, b.name) for i, b in zip(origins, launches, strict=True))
        self._changes = Changes(launches)
        enqueues = [
            (pointer(b.kernel), len(b.items), ffi.new("size_t[]", b.items), ffi.new("size_t[]", b.group))
            for b in launches
        ]
        size = runtime.queues.batch_size
        self._batches = [enqueues[i : i + size] for i in range(0, len(enqueues), size)]
        self._buffer: KhrCommandBuffer | None = None
        functions = runtime.driver.command_buffers
        if buffered and functions is not None:
            queue = runtime.queues.current()
            self._buffer = KhrCommandBuffer(functions, queue, launches, self._changes.cells, runtime.errors)

    def submit(self, rebound: Collection[BindingSlot]) -> None:
        """Set the arguments that have changed, then enqueue all launches."""
        runtime = self._runtime
        if rebound or self._changes.follow_numbers:
            changed = self._changes.take(rebound)
            if self._buffer is None:
                self._set(changed)
            else:
                self._buffer.update(changed)
        if runtime.profile is not None:
            self._submit_profiled(runtime.profile)
            return
        queue = runtime.queues.current()
        if self._buffer is not None:
            self._buffer.submit(queue)
            queue.launched(len(self.bound))
            return
        enqueue, target, null = runtime.driver.enqueue, queue.pointer(), ffi.NULL
        for batch in self._batches:
            for kernel, dimensions, items, group in batch:
                status = enqueue(target, kernel, dimensions, null, items, group, 0, null, null)
                if status:
                    raise self._failed(status, kernel)
            queue.launched(len(batch))

    def describe(self) -> Sequence[DescribedLaunch]:
        """As `DescribesLaunches.describe`."""
        pairs = zip(self.launches, self.bound, strict=True)
        return [described(recorded.call, bound) for recorded, bound in pairs]

    def _set(self, cells: Sequence[Cell]) -> None:
        """Set the arguments of the kernel objects to the values of some cells."""
        set_argument = self._runtime.driver.set_argument
        for cell in cells:
            status = set_argument(cell.kernel, cell.place, cell.size, cell.value)
            if status:
                action = f"setting argument {cell.place} of {self.bound[cell.launch].name}"
                raise self._runtime.errors.from_status(status, action)

    def _submit_profiled(self, profile: list[TimedEnqueue]) -> None:
        """Enqueue each launch with an event."""
        if self._buffer is not None:
            self._set(self._changes.cells)
        queue = self._runtime.queue
        for b in self.bound:
            event = cl.enqueue_nd_range_kernel(queue, b.kernel, b.items, b.group)
            profile.append(TimedEnqueue(b.name, event, get_ident(), b.kernel, b.items, b.group))

    def _failed(self, status: int, kernel: Any) -> Exception:
        """Return the typed error of a failed enqueue."""
        launch = next(b for b in self.bound if pointer(b.kernel) == kernel)
        action = f"launching {launch.name} over {launch.items} in groups of {launch.group}"
        return self._runtime.errors.from_status(status, action)


def prefers_khr_buffers(runtime: DeviceRuntime) -> bool:
    """Return whether the driver's command buffers are faster than single enqueues. Measured at the first call."""
    if runtime.prefers_khr_buffers is None:
        available = runtime.driver.command_buffers is not None
        runtime.prefers_khr_buffers = available and _khr_buffers_are_faster(runtime)
    return runtime.prefers_khr_buffers


def _khr_buffers_are_faster(runtime: DeviceRuntime) -> bool:
    """Time small kernels in both forms."""
    spec = contiguous(dtypes.float32, (64,))
    memory = cl.Buffer(runtime.context, cl.mem_flags.READ_WRITE, spec.nbytes)
    fill, target = copy.fill(runtime, spec), Ref(memory, spec, 0)
    calls = [partial(fill, 0.0, target)] * _SAMPLE
    one_by_one, buffered = (record_as(runtime, calls, buffered=b) for b in (False, True))
    return is_faster(lambda: one_by_one.submit(()), lambda: buffered.submit(()), runtime.finish)
