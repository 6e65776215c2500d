"""`ComputeBackend` over wgpu, with native kernels, command buffers, and profiling if the device has timestamps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from polyhal.backends.common.launching.core_methods import CoreMethods
from polyhal.backends.common.launching.table import lower
from polyhal.backends.wgpu import discovery, lowering
from polyhal.backends.wgpu.capabilities import WGPUFeatures
from polyhal.backends.wgpu.command_buffer import record
from polyhal.backends.wgpu.device_runtime import WGPURuntime
from polyhal.backends.wgpu.memory import Allocation
from polyhal.backends.wgpu.shader import ParameterSizeError
from polyhal.backends.wgpu.user_kernel import compile_kernel
from polyhal.hal.launch_resources import LaunchResources
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import CommandBuffer, CompletionEvent, Declined, InputSpec, Launch, UserKernel

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def create(selector: str) -> WGPUBackend:
    """Open a device by index or by part of a name (see `discovery.select`). Raises DeviceUnavailableError."""
    return open_adapter(discovery.select(selector or "0"))


def open_adapter(
    adapter: discovery.WGPUAdapter, binding_limit: int = 0, quirks: Mapping[str, bool | int] | None = None
) -> WGPUBackend:
    """Open a device. For tests, `binding_limit` lowers the maximum size of a binding, in bytes.

    `quirks` switches workarounds on or off. Raises TypeError for an undeclared name.
    """
    runtime = WGPURuntime(adapter, binding_limit, quirks)
    return ProfilingWGPUBackend(runtime) if runtime.features.timestamps else WGPUBackend(runtime)


class WGPUBackend(CoreMethods):
    """One opened wgpu device."""

    def __init__(self, runtime: WGPURuntime) -> None:
        super().__init__(runtime, lowering.BUILDERS)
        self.runtime = runtime
        self.info = runtime.info
        self.capabilities = runtime.capabilities
        self._memory = runtime.memory
        self._lowerings = lowering.table()

    @property
    def features(self) -> WGPUFeatures:
        """Device properties that select kernels and launches."""
        return self.runtime.features

    def memory_available(self) -> int:
        """Return the available bytes, counting only allocations of this process."""
        return self._memory.available()

    def allocate(self, nbytes: int) -> Allocation:
        """Allocate device memory. Raises OutOfMemoryError."""
        return self._memory.allocate(nbytes)

    def deallocate(self, handle: Allocation) -> None:
        """Release an allocation. Raises BackendError if it was already released."""
        self._memory.deallocate(handle)

    def copy_to_device(self, src: memoryview, dst: Allocation, offset: int) -> None:
        """Copy host bytes to the device."""
        self._memory.write(src, dst, offset)

    def copy_from_device(self, src: Allocation, offset: int, dst: memoryview) -> None:
        """Copy device bytes to the host. Blocks."""
        self._memory.read(src, offset, dst)

    def copy_from_device_async(self, src: Allocation, offset: int, dst: memoryview) -> CompletionEvent:
        """Start a copy of device bytes to the host."""
        return self.runtime.read_back.start(src, offset, dst)

    def synchronize(self) -> None:
        """Submit all recorded work and wait for it."""
        self.runtime.finish()

    def is_lost(self) -> bool:
        """Return whether the library has reported the loss of the device."""
        return bool(self.runtime.errors.lost)

    def flush(self) -> None:
        """Submit all recorded work."""
        self.runtime.encoder.flush()

    def record(self, calls: Sequence[Callable[[], None]]) -> CommandBuffer:
        """Record the launches of `calls`."""
        return record(self.runtime, calls)

    def lower(
        self, op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
    ) -> Launch | Declined:
        """Return a native kernel for `op`, or the reason why it has none."""
        try:
            return lower(self._lowerings, self.runtime, op, inputs, outputs, params)
        except ParameterSizeError as error:
            return Declined(str(error))

    def compile_kernel(
        self,
        kernel: UserKernel,
        inputs: tuple[InputSpec | None, ...],
        outputs: tuple[Spec, ...],
        params: Params,
        grid: tuple[int, ...],
        group: tuple[int, ...],
    ) -> Launch | Declined:
        """Return a launch of a user kernel, or the reason why it cannot run. Raises KernelBuildError."""
        return compile_kernel(self.runtime, kernel, inputs, outputs, params, grid, group)


class ProfilingWGPUBackend(WGPUBackend):
    """A device with timestamps. It is a separate class because optional protocols are recognized by their members."""

    def start_profiling(self) -> None:
        """Time all later launches."""
        self.runtime.start_profiling()

    def stop_profiling(self) -> Sequence[tuple[str, int, int]]:
        """Return (kernel, start, end) of every launch since `start_profiling`, in nanoseconds."""
        return self.runtime.stop_profiling()

    def profiled_launches(self) -> int:
        """Return the number of launches since `start_profiling`."""
        timestamps = self.runtime.encoder.timestamps
        return 0 if timestamps is None else timestamps.count

    def launch_resources(self) -> Sequence[LaunchResources | None]:
        """Return the thread of each launch since `start_profiling`: the API reports neither registers nor memory."""
        timestamps = self.runtime.encoder.timestamps
        return [] if timestamps is None else [LaunchResources(thread=thread) for thread in timestamps.threads]
