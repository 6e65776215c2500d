"""`ComputeBackend` over OpenCL, with the optional protocols of the contract for launches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pyopencl as cl

from polyhal.backends.opencl import capabilities as probed
from polyhal.backends.opencl import discovery, present_units
from polyhal.backends.opencl.command_buffer import record
from polyhal.backends.opencl.device_runtime import DeviceRuntime
from polyhal.backends.opencl.events import OpenCLEvent
from polyhal.backends.opencl.memory import OpenCLMemory
from polyhal.backends.opencl.peers.peer_copies import PeerCopies
from polyhal.backends.opencl.profile import launch_resources
from polyhal.backends.opencl.queues import CommandQueue
from polyhal.backends.opencl_c.collectives.window_communicator import open_window_communicator
from polyhal.backends.opencl_c.kernel_methods import KernelMethods
from polyhal.hal.core.kernels import tuning
from polyhal.hal.launch_descriptions import DeviceNames
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

_HOST, _CUDA = 1, 2
"""DLPack's numbers for the host and for CUDA devices."""


def create(selector: str) -> OpenCLBackend:
    """Open a device by index or by part of a name (see `discovery.select`). Raises DeviceUnavailableError."""
    return OpenCLBackend(discovery.select(selector or "0"))


_GROUP = 64
"""Work-items per group of kernels for GPUs on a processor."""


class OpenCLBackend(KernelMethods):
    """One opened OpenCL device."""

    def __init__(self, device: discovery.OpenCLDevice, quirks: Mapping[str, bool | int] | None = None) -> None:
        """`quirks` switches workarounds on or off, for tests and measurements. Raises TypeError for a name not declared."""
        self.info = device.info
        profile = probed.profile(device.cl, device.info.type)
        profile = replace(profile, quirks={**profile.quirks, **(quirks or {})})
        features = probed.features(device.cl, device.info.type, profile)
        features, self.units = present_units.certified(profile.matrix_units, device.cl, device.info, features)
        self.capabilities = probed.capabilities(device.cl, features)
        tuned = {key: choice.values for key, choice in tuning.load(device.info).items()}
        self.tuning = tuning.Tuning(features, profile.choices, tuned)
        self.runtime = DeviceRuntime(device.cl, device.info, features, self.capabilities, self.tuning, device.context)
        super().__init__(self.runtime, self.runtime.programs, self.runtime)
        self._memory = OpenCLMemory(self.runtime)
        self.peers = PeerCopies(self.runtime, self._memory)

    def device_names(self) -> DeviceNames:
        """As `NamesDevice.device_names`."""
        device = self.runtime.device
        extensions = frozenset(device.extensions.split())
        return DeviceNames(device.platform.name, device.name, device.driver_version, extensions)

    # --- memory -----------------------------------------------------------------------------------------------------

    def memory_available(self) -> int:
        """Return the free bytes, counting only allocations of this process."""
        return self._memory.available()

    def allocate(self, nbytes: int) -> cl.Buffer:
        """Allocate device memory. Raises OutOfMemoryError."""
        self.runtime.programs.expect_builds()
        return self._memory.allocate(nbytes)

    def deallocate(self, handle: cl.Buffer) -> None:
        """Release an allocation. Raises BackendError if it was released before."""
        self._memory.deallocate(handle)

    def copy_to_device(self, src: memoryview, dst: cl.Buffer, offset: int) -> None:
        """Copy host bytes to the device."""
        self._memory.write(src, dst, offset)

    def copy_from_device(self, src: cl.Buffer, offset: int, dst: memoryview) -> None:
        """Copy device bytes to the host. Blocks."""
        with self.runtime.waiting():
            self._memory.read(src, offset, dst)

    def allocate_pinned(self, nbytes: int) -> memoryview:
        """Allocate page-locked host memory."""
        return self._memory.pinned(nbytes)

    def copy_to_device_async(self, src: memoryview, dst: cl.Buffer, offset: int) -> Event:
        """Copy host bytes to the device without staging."""
        return self._memory.write_async(src, dst, offset)

    def copy_from_device_async(self, src: cl.Buffer, offset: int, dst: memoryview) -> CompletionEvent:
        """Start to copy device bytes to the host."""
        return self._memory.read_async(src, offset, dst)

    def can_copy_from(self, peer: ComputeBackend) -> bool:
        """Return whether memory of `peer` can be copied without a detour through host memory."""
        return isinstance(peer, OpenCLBackend) and self.peers.accepts(peer.peers)

    def copy_from_peer(
        self, peer: ComputeBackend, src: cl.Buffer, src_offset: int, dst: cl.Buffer, dst_offset: int, nbytes: int
    ) -> CompletionEvent:
        """Start to copy from the memory of another device."""
        assert isinstance(peer, OpenCLBackend)
        return self.peers.copy(peer.peers, src, src_offset, dst, dst_offset, nbytes)

    def open_communicator(
        self, devices: Sequence[Device], processes: ProcessGroup | None = None
    ) -> Communicator | None:
        """Return a communicator of kernels that write to peers' memory; None unless all devices can access each other's."""
        peers = [d.backend.peers for d in devices if isinstance(d.backend, OpenCLBackend)]
        return open_window_communicator(devices, peers if len(peers) == len(devices) else None, processes)

    def device_address(self, handle: cl.Buffer) -> DeviceAddress | None:
        """Return the host or CUDA address of an allocation; None if it has neither."""
        here = self._memory.host_address(handle) if self.features.cpu else None
        if here is not None:
            return DeviceAddress(_HOST, 0, here)
        exported = self._memory.exported
        address = exported.address(handle) if exported is not None else None
        return DeviceAddress(_CUDA, exported.device.number, address) if exported is not None and address else None

    def allocate_addressable(self, nbytes: int) -> cl.Buffer | None:
        """Allocate memory through CUDA; None if that is not possible."""
        return self._memory.allocate_exported(nbytes) if self.peers.exports() is not None else None

    def import_memory(self, address: int, nbytes: int) -> cl.Buffer | None:
        """Return a buffer over memory of the host; None unless the device is the host's processor."""
        return self._memory.import_host(address, nbytes)

    def is_lost(self) -> bool:
        """Return whether the driver has reported that the device, or this process's context on it, is gone."""
        return bool(self.runtime.errors.lost)

    # --- submission -------------------------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Wait for everything enqueued."""
        self.runtime.finish()

    def flush(self) -> None:
        """Submit everything enqueued on the thread's stream."""
        self.runtime.queue.flush()

    @contextmanager
    def in_groups(self) -> Iterator[None]:
        """Lower ops inside the block as on a GPU: the work-items of a group combine their results through local memory."""
        runtime, own = self.runtime, self.runtime.features
        if own.cpu:
            size = min(own.max_group_size, _GROUP)
            runtime.features = replace(
                own, cpu=False, local_memory_is_real=True, group_size=size, vector_width=4, compute_units=4
            )
        try:
            yield
        finally:
            runtime.features = own

    def record(self, calls: Sequence[Callable[[], None]]) -> CommandBuffer:
        """Record the launches of `calls`."""
        return record(self.runtime, calls)

    def open_stream(self) -> CommandQueue:
        """Return a new stream."""
        return self.runtime.queues.open()

    def switch_stream(self, stream: CommandQueue | None) -> CommandQueue | None:
        """Select the stream of the calling thread. Return the previous selection."""
        return self.runtime.queues.switch(stream)

    def mark(self) -> Event:
        """Return an event after everything enqueued so far on the thread's stream."""
        return OpenCLEvent(self.runtime, self.runtime.queues.current().mark())

    def wait_for(self, event: Event) -> None:
        """Make later work on the thread's stream wait for `event`."""
        own = event.within(self.runtime.context) if isinstance(event, OpenCLEvent) else None
        self.runtime.queues.current().wait_for(event if own is None else own)

    def begin_to_wait(self) -> None:
        """Enqueue the pending waits of the thread's stream."""
        _ = self.runtime.queue

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
        """Return sizes, memory and thread of the launches since `start_profiling`."""
        return launch_resources(self.runtime.profile or [], self.runtime.device)
