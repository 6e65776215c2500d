"""`ComputeBackend` over CUDA: core methods, lowering, transfers and profiling of one device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polyhal.backends.common.launching.core_methods import Builders, CoreMethods
from polyhal.backends.common.launching.table import lower
from polyhal.hal.collectives.communicator import Communicator
from polyhal.hal.collectives.process_group import ProcessGroup
from polyhal.hal.device import Device
from polyhal.hal.layout import Spec
from polyhal.hal.peer_memory import DeviceAddress
from polyhal.hal.protocol import CompletionEvent, ComputeBackend, Declined, Event, InputSpec, Launch
from polyhal_cupy import discovery, lowering
from polyhal_cupy.lowering.gather.gather import gather
from polyhal_cupy.lowering.gather.scatter_add import scatter_add
from polyhal_cupy.lowering.gemm.dispatch import batched
from polyhal_cupy.lowering.pointwise import copy, elementwise
from polyhal_cupy.lowering.reduction import dispatch as reduction
from polyhal_cupy.memory import DeviceMemory
from polyhal_cupy.nccl import NcclCommunicator, nccl_library
from polyhal_cupy.runtime import Runtime

_CUDA = 2
"""DLPack's number for CUDA devices."""
_BUILDERS = Builders(
    group=elementwise.group,
    copy=copy.copy,
    fill=copy.fill,
    reduce=reduction.build,
    matmul=batched,
    gather=gather,
    scatter_add=scatter_add,
)


def create(selector: str) -> CudaBackend:
    """Open a device by number. Raises DeviceUnavailableError."""
    return CudaBackend(discovery.select(selector or "0"))


class CudaBackend(CoreMethods):
    """One opened CUDA device."""

    def __init__(self, number: int) -> None:
        self.info = discovery.describe(number)
        self.runtime = Runtime(number, self.info)
        super().__init__(self.runtime, _BUILDERS)
        self.capabilities = self.runtime.capabilities
        self._memory = DeviceMemory(self.runtime)
        self._lowerings = lowering.table()

    def memory_available(self) -> int:
        """Return the free bytes, considering all processes."""
        return self._memory.available()

    def allocate(self, nbytes: int) -> int:
        """Allocate device memory. Raises OutOfMemoryError."""
        return self._memory.allocate(nbytes)

    def deallocate(self, handle: int) -> None:
        """Release an allocation."""
        self._memory.deallocate(handle)

    def allocate_pinned(self, nbytes: int) -> memoryview:
        """Allocate page-locked host memory, which is freed with the last reference to it."""
        return self._memory.pinned(nbytes)

    def copy_to_device(self, src: memoryview, dst: int, offset: int) -> None:
        """Copy host bytes to the device."""
        self._memory.write(src, dst, offset)

    def copy_to_device_async(self, src: memoryview, dst: int, offset: int) -> Event:
        """Copy host bytes without waiting; `src` must stay unchanged until the event is complete."""
        return self._memory.write_async(src, dst, offset)

    def copy_from_device(self, src: int, offset: int, dst: memoryview) -> None:
        """Copy device bytes to the host. Blocks."""
        self._memory.read(src, offset, dst)

    def can_copy_from(self, peer: ComputeBackend) -> bool:
        """Return whether `peer` is a CUDA device with memory accessible by this device."""
        return isinstance(peer, CudaBackend) and self._memory.reaches(peer.runtime)

    def copy_from_peer(
        self, peer: ComputeBackend, src: int, src_offset: int, dst: int, dst_offset: int, nbytes: int
    ) -> CompletionEvent:
        """Start to copy from the memory of another device. The streams of both wait for each other."""
        assert isinstance(peer, CudaBackend)
        return self._memory.receive(peer.runtime, src + src_offset, dst + dst_offset, nbytes)

    def device_address(self, handle: int) -> DeviceAddress:
        """Return the address of an allocation."""
        return DeviceAddress(_CUDA, self.runtime.number, handle)

    def allocate_addressable(self, nbytes: int) -> int:
        """Allocate memory. All memory of this device is addressable."""
        return self.allocate(nbytes)

    def open_communicator(self, devices: Sequence[Device], processes: ProcessGroup | None = None) -> Communicator | None:
        """Return collectives by NCCL if it is installed and all devices are distinct CUDA cards of one process."""
        if processes is not None:
            return None
        cards = {d.backend.runtime.number for d in devices if isinstance(d.backend, CudaBackend)}
        library = nccl_library()
        return NcclCommunicator(devices, library) if library is not None and 1 < len(devices) == len(cards) else None

    def synchronize(self) -> None:
        """Wait for all enqueued work."""
        self.runtime.finish()

    def start_profiling(self) -> None:
        """Time all later launches."""
        self.runtime.start_profiling()

    def stop_profiling(self) -> Sequence[tuple[str, int, int]]:
        """Return (kernel, start, end) of every launch since `start_profiling`, in nanoseconds."""
        return self.runtime.stop_profiling()

    def lower(
        self, op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        """Return a native kernel for `op`, or the reason why it has none."""
        return lower(self._lowerings, self.runtime, op, inputs, outputs, params)
