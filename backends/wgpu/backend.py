"""`ComputeBackend` over wgpu: core methods, lowering, transfers and profiling of one device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polyhal.backends.common.launching.core_methods import Builders, CoreMethods
from polyhal.backends.common.launching.table import lower
from polyhal.backends.wgpu import discovery, lowering
from polyhal.backends.wgpu.command_buffer import record
from polyhal.backends.wgpu.lowering.gather import dispatch as gather
from polyhal.backends.wgpu.lowering.gemm.dispatch import batched
from polyhal.backends.wgpu.lowering.pointwise import copy, elementwise
from polyhal.backends.wgpu.lowering.reduction import dispatch as reduction
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.protocol import CommandBuffer, Declined, Handle, InputSpec, Launch, Number

_BUILDERS = Builders(
    group=elementwise.group,
    copy=copy.copy,
    fill=copy.fill,
    reduce=reduction.build,
    matmul=batched,
    gather=gather.gather,
    scatter_add=gather.scatter_add,
)


def create(selector: str) -> WGPUBackend:
    """Open a device by index or by part of a name (see `discovery.select`). Raises DeviceUnavailableError."""
    return WGPUBackend(discovery.select(selector or "0"))


class WGPUBackend:
    """One opened wgpu device."""

    def __init__(self, found: discovery.Found, binding_limit: int = 0) -> None:
        """`binding_limit` lowers, for tests, how many bytes of a buffer a kernel can see."""
        self.runtime = Runtime(found, binding_limit)
        self.info = found.info
        self.features = self.runtime.features
        self.capabilities = self.runtime.capabilities
        self._lowerings = lowering.table()

        memory = self.runtime.memory
        core = CoreMethods(self.runtime, _BUILDERS, memory.allocate, memory.deallocate)
        self.memory_available: Callable[[], int] = memory.available
        self.allocate: Callable[[int], Handle] = memory.allocate
        self.deallocate: Callable[[Handle], None] = memory.deallocate
        self.copy_to_device: Callable[[memoryview, Handle, int], None] = memory.write
        self.copy_from_device: Callable[[Handle, int, memoryview], None] = memory.read
        self.flush: Callable[[], None] = self.runtime.recorder.flush
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
        if self.features.timestamps:
            self.start_profiling: Callable[[], None] = self.runtime.start_profiling
            self.stop_profiling: Callable[[], Sequence[tuple[str, int, int]]] = self.runtime.stop_profiling

    def lower(
        self, op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        """A native kernel for `op`, or why there is none."""
        return lower(self._lowerings, self.runtime, op, inputs, outputs, params)

    def record(self, calls: Sequence[Callable[[], None]]) -> CommandBuffer:
        return record(self.runtime, calls)

    def describe(self) -> dict[str, Any]:
        """Facts for `doctor`."""
        return {
            **self.capabilities.features,
            "pipelines_built": self.runtime.pipelines.builds,
            "submissions": self.runtime.recorder.submissions,
        }
