"""Copies between OpenCL devices: within a context, between CPU devices, and through memory that CUDA allocates."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
from dataclasses import replace
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from fake_cuda import GRANULARITY, FakeCuda

import polyhal
from polyhal.backends.common.cuda_driver import CudaDriver, CudaError
from polyhal.backends.opencl import discovery, raw_info
from polyhal.backends.opencl.backend import OpenCLBackend
from polyhal.backends.opencl.driver import ffi
from polyhal.backends.opencl.peers import exported_memory, peer_copies
from polyhal.backends.opencl.peers.imported_memory import MemoryImporter
from polyhal.backends.opencl_c.lowering.collective.exchange import Geometry
from polyhal.hal.device import Device
from polyhal.hal.testing.kit import contract_peer
from polyhal.hal.testing.kit.scope import Scope

CHECKS = pytest.mark.parametrize("check", ["order", "ranges", "released_memory", "streams", "event"])
ADDRESSES = ("0000:0a:00.0", "0000:0b:00.0")

Pair = tuple[OpenCLBackend, OpenCLBackend]


class FakeImport:
    """An OpenCL driver that imports memory by descriptor, with or without taking ownership of the descriptor."""

    def __init__(self, context: cl.Context, *, owns_descriptors: bool) -> None:
        self._context = context
        self._owns = owns_descriptors
        self._keep: list[Any] = []
        self.refuse = False
        self.acquired: list[tuple[int, int]] = []
        """Queue and buffer of memory that is acquired and not yet released."""

    def __call__(self, context: Any, properties: Any, flags: int, nbytes: int, host: Any, status: Any) -> Any:
        assert (properties[0], properties[2]) == (0x2060, 0)
        if self.refuse:
            status[0] = -6
            return ffi.NULL
        memory = mmap.mmap(properties[1], nbytes)
        shared = np.frombuffer(memory, np.uint8)
        buffer: Any = cl.Buffer(self._context, flags | cl.mem_flags.USE_HOST_PTR, hostbuf=shared)
        self._keep.append((memory, shared, buffer))
        raw_info.loader().clRetainMemObject(ffi_pointer(buffer))
        if self._owns:
            os.close(properties[1])
        return ffi.cast("void *", buffer.int_ptr)

    def acquire(self, queue: Any, count: int, objects: Any, waits: int, wait_list: Any, event: Any) -> int:
        assert count == 1
        self.acquired.append((int(ffi.cast("intptr_t", queue)), int(ffi.cast("intptr_t", objects[0]))))
        return 0

    def release(self, queue: Any, count: int, objects: Any, waits: int, wait_list: Any, event: Any) -> int:
        assert count == 1
        self.acquired.remove((int(ffi.cast("intptr_t", queue)), int(ffi.cast("intptr_t", objects[0]))))
        return 0


def ffi_pointer(buffer: Any) -> Any:
    return ctypes.c_void_p(buffer.int_ptr)


@pytest.fixture
def pair(found: discovery.OpenCLDevice) -> Pair:
    """Return two contexts on one device, which share nothing."""
    return OpenCLBackend(found), OpenCLBackend(found)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """Install a driver of two cards, with small size limits."""
    fake = FakeCuda(*ADDRESSES)
    monkeypatch.setattr(exported_memory, "exporting_driver", lambda: CudaDriver(fake))
    monkeypatch.setattr(exported_memory, "EXPORTED_FROM", GRANULARITY)
    monkeypatch.setattr("polyhal.backends.opencl.memory.EXPORTED_FROM", GRANULARITY)
    monkeypatch.setattr(peer_copies, "GEOMETRY", Geometry(channels=1, group=16, slot=4096, batch=1))
    monkeypatch.setattr(MemoryImporter, "accepts", lambda self, kind: True)
    return fake


def as_card(backend: OpenCLBackend, number: int, address: str = "", *, owns_descriptors: bool = False) -> FakeImport:
    """Register a device as the card with this CUDA number or address, and import memory from that card."""
    backend.runtime.info = replace(backend.info, id=f"pci/{address or ADDRESSES[number]}")
    imports = FakeImport(backend.runtime.context, owns_descriptors=owns_descriptors)
    backend.runtime.driver.create_buffer = imports
    backend.runtime.driver.acquire_external = imports.acquire
    backend.runtime.driver.release_external = imports.release
    backend._memory.host_address = lambda handle: None  # a card has its own memory
    return imports


@pytest.fixture
def cards(pocl: discovery.OpenCLDevice, cuda: FakeCuda) -> Pair:
    pair = OpenCLBackend(pocl), OpenCLBackend(pocl)
    for number, backend in enumerate(pair):
        as_card(backend, number)
    return pair


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# --- without CUDA ---------------------------------------------------------------------------------------------------


@CHECKS
def test_copies_between_streams_of_a_device_keep_the_contract(found: discovery.OpenCLDevice, check: str) -> None:
    """Streams of one device simulate devices of one context: the peer's work is on another queue."""
    backend, peer = OpenCLBackend(found), OpenCLBackend(found)
    shared = backend.runtime.context
    peer.runtime.context = shared
    peer.runtime.queues = type(peer.runtime.queues)(shared, found.cl, peer.runtime.errors)
    peer.runtime.programs._context = shared
    assert backend.can_copy_from(peer)
    getattr(contract_peer, check)(backend, peer, Scope(small=True))


@CHECKS
def test_copies_between_contexts_keep_the_contract(pair: Pair, check: str) -> None:
    """Copies run between CPU devices, and through CUDA on cards whose drivers share memory with it."""
    first, second = pair
    if first.can_copy_from(second):
        getattr(contract_peer, check)(first, second, Scope())
    else:
        assert not first.features.cpu


def test_cuda_is_not_used_for_cpu_devices(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(exported_memory, "exporting_driver", lambda: asked.append(1))
    assert pair[0].can_copy_from(pair[1]) is pair[0].features.cpu
    assert not (asked and pair[0].features.cpu)


# --- through memory of CUDA -----------------------------------------------------------------------------------------


@CHECKS
def test_copies_by_kernels_keep_the_contract(cards: Pair, cuda: FakeCuda, check: str) -> None:
    first, second = cards
    assert first.can_copy_from(second)
    assert second.can_copy_from(first)
    getattr(contract_peer, check)(first, second, Scope(small=True))


def test_large_allocations_are_exported_after_the_first_request_of_an_address(cards: Pair, cuda: FakeCuda) -> None:
    first = cards[0]
    before = first.allocate(2 * GRANULARITY)
    assert not cuda.calls
    addressable = first.allocate_addressable(10)
    assert addressable is not None
    first.deallocate(addressable)
    after, small = first.allocate(2 * GRANULARITY + 1), first.allocate(100)
    assert sum(cuda.live.values()) == 3 * GRANULARITY
    assert first.memory_available() == first.info.memory - 5 * GRANULARITY - 100
    for handle in (before, after, small):
        first.deallocate(handle)
    assert not cuda.live
    assert first.memory_available() == first.info.memory


@pytest.mark.parametrize("offsets", [(0, 0), (16, 32), (4, 8), (1, 2)])
def test_copies_begin_at_any_offset(cards: Pair, cuda: FakeCuda, offsets: tuple[int, int]) -> None:
    first, second = cards
    assert first.can_copy_from(second)
    content = np.random.default_rng(3).bytes(30_011)
    src, dst = second.allocate(len(content)), first.allocate(len(content))
    second.copy_to_device(memoryview(content), src, 0)
    first.copy_to_device(memoryview(bytes(len(content))), dst, 0)
    nbytes = len(content) - 100
    first.copy_from_peer(second, src, offsets[0], dst, offsets[1], nbytes).wait()
    out = bytearray(len(content))
    first.copy_from_device(dst, 0, memoryview(out))
    expected = bytearray(len(content))
    expected[offsets[1] : offsets[1] + nbytes] = content[offsets[0] : offsets[0] + nbytes]
    assert out == expected


def test_tensors_move_between_cards(cards: Pair, cuda: FakeCuda) -> None:
    first, second = (Device.opened(f"card{i}", backend) for i, backend in enumerate(cards))
    x = polyhal.ones((400, 300), device=first) * 2
    assert (x.permute((1, 0)).to(second) + 1).sum().item() == 3 * 120_000


def test_without_access_there_is_no_copy_by_kernels(cards: Pair, cuda: FakeCuda) -> None:
    first, second = cards
    cuda.peers = False
    assert first.can_copy_from(second) is first.features.cpu


@pytest.mark.parametrize("function", ["cuDeviceGetByPCIBusId", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuInit"])
def test_exporting_is_optional(cards: Pair, cuda: FakeCuda, function: str) -> None:
    first, second = cards
    cuda.refused[function] = 999
    if function == "cuInit":
        with pytest.raises(CudaError, match="cuInit failed with status 999"):
            CudaDriver(cuda)
        return
    assert first.can_copy_from(second) is first.features.cpu
    first.deallocate(first.allocate(4 * GRANULARITY))
    assert not cuda.live, "allocations before the failure are released"


def test_a_full_card_allocates_without_exporting(cards: Pair, cuda: FakeCuda) -> None:
    first, second = cards
    assert first.allocate_addressable(10) is not None
    cuda.capacity = 0
    assert first.can_copy_from(second) is first.features.cpu, "the memory has no space for windows"
    handle = first.allocate(8 * GRANULARITY)
    first.copy_to_device(memoryview(bytes(8)), handle, 0)
    first.deallocate(handle)


def test_a_refused_import_is_not_an_error(cards: Pair, cuda: FakeCuda) -> None:
    first, second = cards
    imports = as_card(first, 0)
    assert first.allocate_addressable(10) is not None
    imports.refuse = True
    assert first.can_copy_from(second) is first.features.cpu
    live = dict(cuda.live)
    descriptors = open_descriptors()
    first.deallocate(first.allocate(4 * GRANULARITY))
    assert cuda.live == live
    assert open_descriptors() == descriptors


def test_acquired_memory_is_released(pocl: discovery.OpenCLDevice, cuda: FakeCuda) -> None:
    """Imports end with the allocation and with the device: a queue with acquired memory may never be released."""
    backends = [OpenCLBackend(pocl) for _ in ADDRESSES]
    imports = [as_card(backend, number) for number, backend in enumerate(backends)]
    first, second = backends
    assert first.can_copy_from(second)
    assert [len(i.acquired) for i in imports] == [2, 2], (
        "its own window and the other's; windows of trials are released"
    )
    kept = first.allocate_addressable(GRANULARITY)
    given_back = first.allocate(GRANULARITY)
    assert len(imports[0].acquired) == 4
    first.deallocate(given_back)
    assert len(imports[0].acquired) == 3
    assert kept is not None
    assert imports[0].acquired[-1] == (first.runtime.queue.int_ptr, kept.int_ptr)
    del first, second, backends
    gc.collect()
    assert [len(i.acquired) for i in imports] == [0, 0]


@pytest.mark.parametrize("owns", [True, False], ids=["owns", "leaves"])
def test_descriptors_are_closed_once(pair: Pair, cuda: FakeCuda, owns: bool) -> None:
    """The OpenCL driver closes imported descriptors if it owns them, else the importer does."""
    for number, backend in enumerate(pair):
        as_card(backend, number, owns_descriptors=owns)
    assert pair[0].allocate_addressable(GRANULARITY) is not None
    pair[0].deallocate(pair[0].allocate(GRANULARITY))
    descriptors = open_descriptors()
    handles = [pair[0].allocate(GRANULARITY) for _ in range(5)]
    # Remaining: descriptors of the memory itself, which the driver keeps, and of its mapping in this process.
    assert open_descriptors() == descriptors + 10
    for handle in handles:
        pair[0].deallocate(handle)


def test_tensors_are_exported_with_their_cuda_address(cards: Pair, cuda: FakeCuda) -> None:
    """Tensors from before the first export, and small ones, are copied on the device."""
    device = Device.opened("card", cards[1])
    x = polyhal.arange(10, device=device)
    export = polyhal.to_dlpack(x[3:], device=True)
    assert export.__dlpack_device__() == (2, 1)
    device.synchronize()
    memory = (ctypes.c_int64 * 7).from_address(export.place.address)
    assert list(memory) == [3, 4, 5, 6, 7, 8, 9]
    large = polyhal.full((2 * GRANULARITY,), 7.0, device=device)
    place = polyhal.to_dlpack(large, device=True).place
    device.synchronize()
    assert ctypes.c_float.from_address(place.address + 4 * GRANULARITY).value == 7.0
    allocations = len(cuda.live)
    del export
    assert len(cuda.live) == allocations - 1, "the copy is released with the export, the tensor's memory is not"
