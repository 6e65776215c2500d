"""`ComputeBackend` over OpenCL: core methods, lowering, transfers and profiling of one device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polyhal.backends.common.launching.core_methods import Builders, CoreMethods
from polyhal.backends.common.launching.table import lower
from polyhal.backends.opencl import capabilities as probed
from polyhal.backends.opencl import discovery, lowering
from polyhal.backends.opencl.command_buffer import record
from polyhal.backends.opencl.lowering.gather import gather, scatter_add
from polyhal.backends.opencl.lowering.gemm.dispatch import batched
from polyhal.backends.opencl.lowering.pointwise import copy, elementwise
from polyhal.backends.opencl.lowering.reduction import dispatch as reduction
from polyhal.backends.opencl.memory import ClEvent, Memory
from polyhal.backends.opencl.queues import Lane
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.kernels import tuning
from polyhal.hal.kernels.call_log import Call, Record
from polyhal.hal.kernels.library import KernelLibrary
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.protocol import CommandBuffer, Declined, Event, Handle, InputSpec, Launch, Number

_BUILDERS = Builders(
    group=elementwise.group,
    copy=copy.copy,
    fill=copy.fill,
    reduce=reduction.build,
    matmul=batched,
    gather=gather.gather,
    scatter_add=scatter_add.scatter_add,
)


def create(selector: str) -> OpenCLBackend:
    """Open a device by index or by part of a name (see `discovery.select`). Raises DeviceUnavailableError."""
    return OpenCLBackend(discovery.select(selector or "0"))


class OpenCLBackend:
    """One opened OpenCL device."""

    def __init__(self, found: discovery.Found) -> None:
        self.info = found.info
        profile = probed.profile(found.device, found.info.type)
        self.features = probed.features(found.device, found.info.type, profile)
        self.capabilities = probed.capabilities(found.device, self.features)
        measured = {key: choice.values for key, choice in tuning.load(found.info).items()}
        self.tuning = tuning.Tuning(self.features, profile.choices, measured)
        self.runtime = Runtime(found.device, found.info, self.features, self.capabilities, self.tuning)
        self.kernels: KernelLibrary = self.runtime.programs
        self._calls = Record(found.info)
        self._memory = Memory(self.runtime)
        self._lowerings = lowering.table()
        core = CoreMethods(self.runtime, _BUILDERS, self._memory.allocate, self._memory.deallocate)

        memory = self._memory
        self.allocate: Callable[[int], Handle] = memory.allocate
        self.deallocate: Callable[[Handle], None] = memory.deallocate
        self.copy_to_device: Callable[[memoryview, Handle, int], None] = memory.write
        self.allocate_pinned: Callable[[int], memoryview] = memory.pinned
        self.copy_to_device_async: Callable[[memoryview, Handle, int], Event] = memory.write_async
        self.synchronize: Callable[[], None] = self.runtime.finish
        self.fill: Callable[[Number, Ref], None] = core.fill
        self.copy: Callable[[Ref, Ref], None] = core.copy
        self.unary: Callable[[str, Ref, Ref], None] = core.unary
        self.binary: Callable[[str, Ref, Ref, Ref], None] = core.binary
        self.where: Callable[[Ref, Ref, Ref, Ref], None] = core.where
        self.reduce: Callable[[str, Ref, Ref], None] = core.reduce
        self.matmul: Callable[[Ref, Ref, Ref], None] = core.matmul
        self.gather: Callable[[Ref, Ref, Ref], None] = core.gather
        self.scatter_add: Callable[[Ref, Ref, Ref], None] = core.scatter_add
        self.start_profiling: Callable[[], None] = self.runtime.start_profiling
        self.stop_profiling: Callable[[], Sequence[tuple[str, int, int]]] = self.runtime.stop_profiling

    def memory_available(self) -> int:
        return self._memory.available()

    def copy_from_device(self, src: Handle, offset: int, dst: memoryview) -> None:
        with self.runtime.waiting():
            self._memory.read(src, offset, dst)

    def record(self, calls: Sequence[Callable[[], None]]) -> CommandBuffer:
        return record(self.runtime, calls)

    def flush(self) -> None:
        self.runtime.queue.flush()

    def open_stream(self) -> Lane:
        return self.runtime.lanes.open()

    def switch_stream(self, stream: Lane | None) -> Lane | None:
        return self.runtime.lanes.switch(stream)

    def mark(self) -> Event:
        return ClEvent(self.runtime.lanes.current().mark())

    def wait_for(self, event: Event) -> None:
        assert isinstance(event, ClEvent)
        self.runtime.lanes.current().wait_for(event.cl)

    def lower(
        self, op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        """A native kernel for `op`, or why there is none."""
        before = len(self.kernels.built)
        launch = lower(self._lowerings, self.runtime, op, inputs, outputs, params)
        if built := self.kernels.built[before:]:
            self._calls.add(Call(op, inputs, outputs, params), [b.digest for b in built if b.compiled])
        return launch

    def describe(self) -> dict[str, Any]:
        """Facts for `doctor`."""
        return {**self.capabilities.features, **self.runtime.describe()}
