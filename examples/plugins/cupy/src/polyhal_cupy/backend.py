"""`ComputeBackend` over CUDA: members by CuPy's functions, matrix products by cuBLAS, collectives by NCCL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cupy

from polyhal.backends.common.problems import gemm
from polyhal.hal.capabilities import Capabilities
from polyhal.hal.collectives.communicator import Communicator
from polyhal.hal.collectives.process_group import ProcessGroup
from polyhal.hal.device import Device
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.peer_memory import DeviceAddress
from polyhal.hal.protocol import (
    REQUIRED_BINARY,
    REQUIRED_REDUCE,
    REQUIRED_UNARY,
    CompletionEvent,
    ComputeBackend,
    Declined,
    Event,
    InputSpec,
    Launch,
    Number,
)
from polyhal_cupy import discovery
from polyhal_cupy.blas import LOWERINGS, Blas
from polyhal_cupy.functions import BINARY, COMPUTE, REDUCE, UNARY, Function, fill, gather, scatter_add, view
from polyhal_cupy.memory import DeviceMemory
from polyhal_cupy.nccl import NcclCommunicator, nccl_library
from polyhal_cupy.stream import Stream

_CUDA = 2
"""DLPack's number for CUDA devices."""


def create(selector: str) -> CudaBackend:
    """Open a device by number. Raises DeviceUnavailableError."""
    return CudaBackend(discovery.select(selector or "0"))


class CudaBackend:
    """One opened CUDA device."""

    def __init__(self, number: int) -> None:
        self.info = discovery.describe(number)
        self.capabilities = Capabilities(
            compute=COMPUTE,
            unary=frozenset(UNARY) - REQUIRED_UNARY,
            binary=frozenset(BINARY) - REQUIRED_BINARY,
            reduce=frozenset(REDUCE) - REQUIRED_REDUCE,
        )
        self.stream = Stream(number, self.info)
        self._memory = DeviceMemory(self.stream)
        self._blas = Blas(self.stream)

    # --- memory -----------------------------------------------------------------------------------------------------

    def memory_available(self) -> int:
        """Return the free bytes, considering all processes."""
        return self._memory.available()

    def allocate(self, nbytes: int) -> int:
        """Allocate device memory. Raises OutOfMemoryError."""
        return self._memory.allocate(nbytes)

    def deallocate(self, handle: int) -> None:
        """Release an allocation."""
        self._memory.deallocate(handle)

    def copy_to_device(self, src: memoryview, dst: int, offset: int) -> None:
        """Copy host bytes to the device. Blocks."""
        self._memory.write(src, dst + offset)

    def copy_from_device(self, src: int, offset: int, dst: memoryview) -> None:
        """Copy device bytes to the host. Blocks."""
        self._memory.read(src + offset, dst)

    def synchronize(self) -> None:
        """Wait for all enqueued work."""
        self.stream.finish()

    # --- required members -------------------------------------------------------------------------------------------

    def fill(self, value: Number, out: Ref) -> None:
        with self.stream.entered("fill"):
            fill(value, view(out))

    def copy(self, src: Ref, out: Ref) -> None:
        with self.stream.entered("copy"):
            cupy.copyto(view(out), view(src), casting="unsafe")

    def unary(self, op: str, x: Ref, out: Ref) -> None:
        self._compute(op, UNARY[op], out, x)

    def binary(self, op: str, a: Ref, b: Ref, out: Ref) -> None:
        self._compute(op, BINARY[op], out, a, b)

    def where(self, cond: Ref, a: Ref, b: Ref, out: Ref) -> None:
        with self.stream.entered("where"):
            view(out)[...] = cupy.where(view(cond), view(a), view(b))

    def reduce(self, op: str, x: Ref, out: Ref) -> None:
        with self.stream.entered(op):
            cupy.copyto(view(out), REDUCE[op](view(x), axis=-1), casting="unsafe")

    def matmul(self, a: Ref, b: Ref, out: Ref) -> None:
        if out.dtype.is_floating_point:
            gemm.batched(Blas.build, self._blas, a.spec, b.spec, out.spec)(a, b, out)
        else:
            self._compute("matmul", cupy.matmul, out, a, b)

    def gather(self, index: Ref, x: Ref, out: Ref) -> None:
        with self.stream.entered("gather"):
            gather(view(index), view(x), view(out))

    def scatter_add(self, index: Ref, src: Ref, out: Ref) -> None:
        with self.stream.entered("scatter_add"):
            scatter_add(view(index), view(src), view(out))

    def _compute(self, op: str, function: Function, out: Ref, *inputs: Ref) -> None:
        with self.stream.entered(op):
            function(*map(view, inputs), out=view(out))

    # --- optional protocols -----------------------------------------------------------------------------------------

    def lower(
        self, op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        """Multiply matrices by cuBLAS; every other op runs as members, or as its decomposition."""
        lowering = LOWERINGS.get(op)
        if lowering is None:
            return Declined(f"no library of CUDA is used for {op}")
        return lowering(self._blas, inputs, outputs, params)

    def allocate_pinned(self, nbytes: int) -> memoryview:
        """Allocate page-locked host memory, which is freed with the last reference to it."""
        return self._memory.pinned(nbytes)

    def copy_to_device_async(self, src: memoryview, dst: int, offset: int) -> Event:
        """Copy host bytes without waiting; `src` must stay unchanged until the event is complete."""
        return self._memory.write_async(src, dst + offset)

    def can_copy_from(self, peer: ComputeBackend) -> bool:
        """Return whether `peer` is a CUDA device with memory accessible by this device."""
        return isinstance(peer, CudaBackend) and self._memory.reaches(peer.stream)

    def copy_from_peer(
        self, peer: ComputeBackend, src: int, src_offset: int, dst: int, dst_offset: int, nbytes: int
    ) -> CompletionEvent:
        """Start to copy from the memory of another device. The streams of both wait for each other."""
        assert isinstance(peer, CudaBackend)
        return self._memory.receive(peer.stream, src + src_offset, dst + dst_offset, nbytes)

    def device_address(self, handle: int) -> DeviceAddress:
        """Return the address of an allocation, for other libraries by DLPack."""
        return DeviceAddress(_CUDA, self.stream.number, handle)

    def allocate_addressable(self, nbytes: int) -> int:
        """Allocate memory. All memory of this device is addressable."""
        return self.allocate(nbytes)

    def open_communicator(
        self, devices: Sequence[Device], processes: ProcessGroup | None = None
    ) -> Communicator | None:
        """Return collectives by NCCL if it is installed and all devices are distinct CUDA cards of one process."""
        if processes is not None:
            return None
        cards = {d.backend.stream.number for d in devices if isinstance(d.backend, CudaBackend)}
        library = nccl_library()
        return NcclCommunicator(devices, library) if library is not None and 1 < len(devices) == len(cards) else None
