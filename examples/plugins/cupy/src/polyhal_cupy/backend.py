"""`ComputeBackend` over CUDA: core methods, lowering, transfers and profiling of one device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polyhal.backends.common.launching.core_methods import Builders, CoreMethods
from polyhal.backends.common.launching.table import lower
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.protocol import Declined, Event, Handle, InputSpec, Launch, Number
from polyhal_cupy import discovery, lowering
from polyhal_cupy.lowering.gather import dispatch as gather
from polyhal_cupy.lowering.gemm.dispatch import batched
from polyhal_cupy.lowering.pointwise import copy, elementwise
from polyhal_cupy.lowering.reduction import dispatch as reduction
from polyhal_cupy.memory import Memory
from polyhal_cupy.runtime import Runtime

_BUILDERS = Builders(
    group=elementwise.group,
    copy=copy.copy,
    fill=copy.fill,
    reduce=reduction.build,
    matmul=batched,
    gather=gather.gather,
    scatter_add=gather.scatter_add,
)


def create(selector: str) -> CudaBackend:
    """Open a device by its number. Raises DeviceUnavailableError."""
    return CudaBackend(discovery.select(selector or "0"))


class CudaBackend:
    """One opened CUDA device."""

    def __init__(self, number: int) -> None:
        self.info = discovery.describe(number)
        self.runtime = Runtime(number, self.info)
        self.capabilities = self.runtime.capabilities
        self._lowerings = lowering.table()
        memory = Memory(self.runtime)
        core = CoreMethods(self.runtime, _BUILDERS, memory.allocate, memory.deallocate)

        self.memory_available: Callable[[], int] = memory.available
        self.allocate: Callable[[int], Handle] = memory.allocate
        self.deallocate: Callable[[Handle], None] = memory.deallocate
        self.copy_to_device: Callable[[memoryview, Handle, int], None] = memory.write
        self.copy_from_device: Callable[[Handle, int, memoryview], None] = memory.read
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
        self.allocate_pinned: Callable[[int], memoryview] = memory.pinned
        self.copy_to_device_async: Callable[[memoryview, Handle, int], Event] = memory.write_async
        self.start_profiling: Callable[[], None] = self.runtime.start_profiling
        self.stop_profiling: Callable[[], Sequence[tuple[str, int, int]]] = self.runtime.stop_profiling

    def lower(
        self, op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        """A native kernel for `op`, or why there is none."""
        return lower(self._lowerings, self.runtime, op, inputs, outputs, params)
