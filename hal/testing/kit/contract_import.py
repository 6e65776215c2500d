"""Checks of imported host memory: visibility of writes on both sides, and releases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.device import Device
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.peer_memory import SupportsMemoryImport
from polyhal.hal.protocol import Handle
from polyhal.hal.testing.kit.member_calls import MemberCheck
from polyhal.hal.testing.kit.scope import Scope

_SIZES = (300_000, 1000)
"""Numbers of elements; in a small scope only the last."""
_SHIFTS = (0, 1, 5)
"""Offsets of the memory from the start of a block, in elements."""
_STEPS = 20


def checks(device: Device, scope: Scope) -> Iterator[tuple[str, MemberCheck]]:
    """Yield the checks by name; none if the device or its driver does not support imports."""
    backend = device.backend
    if not isinstance(backend, SupportsMemoryImport) or not _imports(backend):
        return
    sizes = _SIZES[-1:] if scope.small else _SIZES
    yield "memory_import/both_ways", lambda: both_ways(backend, sizes)
    yield "memory_import/borders", lambda: borders(backend)
    yield "memory_import/transfers", lambda: transfers(backend)
    yield "memory_import/release", lambda: release(backend)


def _imports(backend: Any) -> bool:
    memory = np.zeros(_SIZES[-1], np.float32)
    handle = _handle(backend, memory)
    if handle is None:
        return False
    backend.deallocate(handle)
    return True


def _handle(backend: Any, memory: np.ndarray) -> Handle | None:
    return backend.import_memory(memory.__array_interface__["data"][0], memory.nbytes)


def _ref(backend: Any, memory: np.ndarray) -> Ref:
    """Return a reference to all elements of a float32 array, in its memory."""
    handle = _handle(backend, memory)
    assert handle is not None, f"import_memory accepted other memory, but not {memory.nbytes} bytes at another address"
    return Ref(handle, contiguous(dtypes.float32, memory.shape)._replace(aligned=False), 0)


def both_ways(backend: Any, sizes: tuple[int, ...]) -> None:
    """Check repeatedly that work reads the host's earlier writes, and that the host reads the results of work."""
    for size in sizes:
        for shift in _SHIFTS:
            memory = np.zeros(size + shift, np.float32)[shift:]
            one = np.ones(size, np.float32)
            x, ones = _ref(backend, memory), _ref(backend, one)
            handle = backend.allocate(memory.nbytes)
            out = Ref(handle, x.spec, 0)
            try:
                for step in range(_STEPS):
                    memory += 1
                    backend.binary("add", x, ones, out)
                    backend.copy(out, x)
                    backend.synchronize()
                    wrong = np.count_nonzero(memory != 2 * (step + 1))
                    assert not wrong, (
                        f"{wrong} of {size} elements are wrong in round {step + 1} of the host and the device adding 1 each "
                        f"to imported memory; the first is {memory[0]}, expected {2 * (step + 1)}"
                    )
            finally:
                for used in (x.handle, ones.handle, handle):
                    backend.deallocate(used)


def borders(backend: Any) -> None:
    """Check that memory outside of the imported bytes is not accessed."""
    for size in (1, 3, 17, 257):
        for shift in _SHIFTS:
            whole = np.full(size + shift + 40, -1, np.float32)
            x = _ref(backend, whole[shift : shift + size])
            backend.fill(7.0, x)
            backend.synchronize()
            backend.deallocate(x.handle)
            expected = np.full_like(whole, -1)
            expected[shift : shift + size] = 7
            assert (whole == expected).all(), f"a fill of {size} imported elements wrote outside of them"


def transfers(backend: Any) -> None:
    """Check transfers to and from imported memory, at any offset."""
    memory = np.arange(1024, dtype=np.uint8)
    handle = _handle(backend, memory)
    expected = memory.copy()
    for offset, n in ((0, 16), (3, 5), (511, 257), (1023, 1)):
        source = bytes((offset + i * 7) % 251 for i in range(n))
        backend.copy_to_device(memoryview(source), handle, offset)
        expected[offset : offset + n] = np.frombuffer(source, np.uint8)
    out = bytearray(1000)
    backend.copy_from_device(handle, 24, memoryview(out))
    backend.synchronize()
    assert (np.frombuffer(out, np.uint8) == expected[24:]).all(), (
        "copy_from_device returned other bytes than were written"
    )
    assert (memory == expected).all(), "bytes written to imported memory by copy_to_device are not visible to the host"
    backend.deallocate(handle)


def release(backend: Any) -> None:
    """Check that memory can be imported again after a release, and does not use device memory."""
    memory = np.zeros(100_000, np.float32)
    before = backend.memory_available()
    for step in range(_STEPS):
        x = _ref(backend, memory)
        again = _ref(backend, memory[: memory.size // 2])
        backend.fill(step + 1.0, x)
        backend.fill(-1.0, again)
        backend.deallocate(x.handle)
        backend.deallocate(again.handle)
        backend.synchronize()
        half = memory.size // 2
        assert (memory[:half] == -1).all(), "work on imported memory was lost when it was released"
        assert (memory[half:] == step + 1).all(), "work on imported memory was lost when it was released"
    after = backend.memory_available()
    assert after >= before, f"memory_available fell from {before} to {after} after memory was imported and released"
