"""`ComputeBackend` over the CUDA driver, with the kernels in OpenCL C."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from polyhal.backends.cuda import capabilities as probed
from polyhal.backends.cuda import discovery
from polyhal.backends.cuda.command_buffer import record
from polyhal.backends.cuda.events import CudaEvent
from polyhal.backends.cuda.foreign import CUDA, ForeignCudaMemory, ForeignStreams
from polyhal.backends.cuda.memory import CudaMemory, CudaTransfers
from polyhal.backends.cuda.participant import CudaParticipant
from polyhal.backends.cuda.peers import CudaPeerCopies
from polyhal.backends.cuda.profile import launch_resources
from polyhal.backends.cuda.runtime import CudaRuntime
from polyhal.backends.cuda.self_check import self_check
from polyhal.backends.cuda.streams import CudaStream
from polyhal.backends.opencl_c.capabilities import kernel_capabilities
from polyhal.backends.opencl_c.collectives.window_communicator import open_window_communicator
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.kernel_methods import KernelMethods
from polyhal.hal.core.kernels import tuning
from polyhal.hal.launch_resources import LaunchResources
from polyhal.hal.peer_memory import DeviceAddress
from polyhal.hal.protocol import (
    CommandBuffer,
    CompletionEvent,
    ComputeBackend,
    Event,
)

if TYPE_CHECKING:
    from polyhal.hal.collectives.communicator import Communicator
    from polyhal.hal.collectives.process_group import ProcessGroup
    from polyhal.hal.device import Device

_DISTINCT_MEMORY = 32 << 20
"""Bytes that fit in the second-level cache, together with parameters, even if no value takes the place of another."""


def create(selector: str) -> CudaBackend:
    """Open a device by index or by part of a name, after a self-check. Raises DeviceUnavailableError."""
    backend = CudaBackend(discovery.select(selector or "0"))
    self_check(backend)
    return backend


class CudaBackend(KernelMethods):
    """One opened CUDA device."""

    def __init__(
        self,
        device: discovery.ListedDevice,
        quirks: Mapping[str, bool | int] | None = None,
        features: KernelFeatures | None = None,
    ) -> None:
        """`quirks` and `features` replace workarounds and probed facts, for tests and measurements."""
        self.info = device.info
        profile = probed.profile(device.info.type)
        profile = replace(profile, quirks={**profile.quirks, **(quirks or {})})
        features = features or probed.features(device.driver, device.ordinal, device.info.name, profile)
        version = device.driver.version
        capabilities = kernel_capabilities(
            features,
            device.info.memory,
            {
                "cuda": f"{version // 1000}.{version % 1000 // 10}",
                "compute_capability": f"{features.compute_capability / 10:.1f}",
                "compiler": device.compiler.name if device.compiler else "none, cached programs only",
            },
        )
        limits = replace(capabilities.limits, distinct_memory=_DISTINCT_MEMORY)
        self.capabilities = replace(capabilities, limits=limits)
        tuned = {key: choice.values for key, choice in tuning.load(device.info).items()}
        self.tuning = tuning.Tuning(features, profile.choices, tuned)
        self.runtime = CudaRuntime(
            device.driver, device.ordinal, device.compiler, device.info, features, self.capabilities, self.tuning
        )
        super().__init__(self.runtime, self.runtime.programs, self.runtime)
        self._foreign = ForeignStreams(self.runtime)
        self._memory = CudaTransfers(self.runtime)
        self._peers = CudaPeerCopies(self.runtime)
        self.participant = CudaParticipant(self.runtime)

    # --- memory -----------------------------------------------------------------------------------------------------

    def memory_available(self) -> int:
        """Return the free bytes, which other processes share."""
        return self._memory.available()

    def allocate(self, nbytes: int) -> CudaMemory:
        """Allocate device memory. Raises OutOfMemoryError."""
        return self._memory.allocate(nbytes)

    def deallocate(self, handle: CudaMemory) -> None:
        """Release an allocation; no-op for memory of another library. Raises BackendError if it was released before."""
        if not isinstance(handle, ForeignCudaMemory):
            self._memory.deallocate(handle)

    def copy_to_device(self, src: memoryview, dst: CudaMemory, offset: int) -> None:
        """Copy host bytes to the device."""
        self._memory.write(src, dst, offset)

    def copy_from_device(self, src: CudaMemory, offset: int, dst: memoryview) -> None:
        """Copy device bytes to the host. Blocks."""
        self._memory.read(src, offset, dst)

    def allocate_pinned(self, nbytes: int) -> memoryview:
        """Allocate page-locked host memory."""
        return memoryview(self._memory.pinned(nbytes))  # type: ignore[arg-type]

    def copy_to_device_async(self, src: memoryview, dst: CudaMemory, offset: int) -> Event:
        """Copy host bytes to the device without staging."""
        return self._memory.write_async(src, dst, offset)

    def copy_from_device_async(self, src: CudaMemory, offset: int, dst: memoryview) -> CompletionEvent:
        """Start to copy device bytes to the host."""
        return self._memory.read_async(src, offset, dst)

    def can_copy_from(self, peer: ComputeBackend) -> bool:
        """Return whether memory of `peer` can be copied without a detour through host memory."""
        return isinstance(peer, CudaBackend)

    def copy_from_peer(
        self, peer: ComputeBackend, src: CudaMemory, src_offset: int, dst: CudaMemory, dst_offset: int, nbytes: int
    ) -> CompletionEvent:
        """Start to copy from the memory of another device."""
        assert isinstance(peer, CudaBackend)
        return self._peers.copy(peer.runtime, src.address + src_offset, dst.address + dst_offset, nbytes)

    def open_communicator(
        self, devices: Sequence[Device], processes: ProcessGroup | None = None
    ) -> Communicator | None:
        """Return a communicator of kernels that write to peers' memory; None unless all devices can access each other's."""
        own = [d.backend.participant for d in devices if isinstance(d.backend, CudaBackend)]
        return open_window_communicator(devices, own if len(own) == len(devices) else None, processes)

    def device_address(self, handle: CudaMemory) -> DeviceAddress:
        """Return the CUDA address of an allocation."""
        return DeviceAddress(CUDA, self.runtime.ordinal, handle.address)

    def allocate_addressable(self, nbytes: int) -> CudaMemory:
        """Allocate memory: all of it has a CUDA address. Raises OutOfMemoryError."""
        return self.allocate(nbytes)

    def memory_space(self) -> tuple[int, int]:
        """Return the kind and the number of the device, as DLPack counts them."""
        return CUDA, self.runtime.ordinal

    def number_of_device(self, address: int) -> int | None:
        """Return the number of the device that has the memory at an address."""
        return self._foreign.number_of_device(address)

    def import_device_memory(self, address: int, nbytes: int) -> CudaMemory:
        """Return a handle for memory of another library."""
        return ForeignCudaMemory(address, nbytes)

    def stream_number(self) -> int:
        """Return the handle of the thread's stream."""
        return self._foreign.number()

    def wait_for_stream(self, number: int) -> None:
        """Make later work on the thread's stream wait for another library's stream."""
        self._foreign.wait_for(number)

    def let_stream_wait(self, number: int) -> None:
        """Make later work on another library's stream wait for the thread's."""
        self._foreign.let_wait(number)

    def mark_everything(self) -> Event:
        """Return an event after everything enqueued on all streams, and on the default stream."""
        return self._foreign.mark_everything()

    def is_lost(self) -> bool:
        """Return whether the driver has reported that this process's context on the device is unusable."""
        return bool(self.runtime.errors.lost)

    # --- submission -------------------------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Wait for everything enqueued."""
        self.runtime.finish()

    def record(self, calls: Sequence[Callable[[], None]]) -> CommandBuffer:
        """Record the launches of `calls`."""
        return record(self.runtime, calls)

    def open_stream(self) -> CudaStream:
        """Return a new stream."""
        with self.runtime.calling("creating a stream"):
            return self.runtime.streams.open()

    def switch_stream(self, stream: CudaStream | None) -> CudaStream | None:
        """Select the stream of the calling thread. Return the previous selection."""
        return self.runtime.streams.switch(stream)

    def mark(self) -> Event:
        """Return an event after everything enqueued so far on the thread's stream."""
        runtime = self.runtime
        with runtime.calling("marking a point of the stream"):
            return CudaEvent(runtime.context, runtime.errors, runtime.streams.current().mark())

    def wait_for(self, event: Event) -> None:
        """Make later work on the thread's stream wait for `event`."""
        with self.runtime.calling("waiting for an event"):
            self.runtime.streams.current().wait_for(event)

    def start_profiling(self) -> None:
        """Record timestamps for every later launch."""
        self.runtime.start_profiling()

    def stop_profiling(self) -> Sequence[tuple[str, int, int]]:
        """Return (kernel, start, end) of every launch since `start_profiling`, in nanoseconds."""
        return self.runtime.stop_profiling()

    def profiled_launches(self) -> int:
        """Return the number of launches since `start_profiling`."""
        return len(self.runtime.profile or ())

    def launch_resources(self) -> Sequence[LaunchResources | None]:
        """Return sizes, memory, occupancy and thread of the launches since `start_profiling`."""
        return launch_resources(self.runtime.profile or [], self.runtime.context)
