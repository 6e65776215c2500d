"""Stand-in for CUDA's runtime with two devices. Names are CuPy's."""

from __future__ import annotations

import bisect
import ctypes
import threading
from typing import Any

import numpy as np

CUDA_R_32F, CUDA_R_64F, CUDA_R_16F, CUDA_R_16BF = 0, 1, 2, 14
memcpyHostToDevice, memcpyDeviceToHost = 1, 2
_DEVICES = 2
_MEMORY = 8 << 30
_lock = threading.Lock()
_live: dict[int, np.ndarray] = {}
"""Allocations by address."""
_addresses: list[int] = []
"""Addresses of allocations, sorted."""


class CUDARuntimeError(RuntimeError):
    """Error of a call, with CUDA's status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


def array(address: int, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """Return a view of device memory. Asserts that all elements are inside one allocation."""
    steps = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    low, high = sum(min(s, 0) for s in steps), sum(max(s, 0) for s in steps) + np.dtype(dtype).itemsize
    with _lock:
        start = _addresses[bisect.bisect(_addresses, address) - 1]
        memory = _live[start]
    assert start <= address + low
    assert address + high <= start + memory.nbytes, "access beyond the end of an allocation"
    return np.ndarray(shape, dtype, memory, address - start, strides)


def getDeviceCount() -> int:
    return _DEVICES


def getDeviceProperties(device: int) -> dict[str, Any]:
    return {"name": b"Stand-in", "integrated": 0, "totalGlobalMem": _MEMORY}


def deviceGetPCIBusId(device: int) -> str:
    return f"0000:0{device}:00.0"


def driverGetVersion() -> int:
    return 13000


def setDevice(device: int) -> None:
    if not 0 <= device < _DEVICES:
        raise CUDARuntimeError(101)


def memGetInfo() -> tuple[int, int]:
    with _lock:
        return _MEMORY - sum(a.nbytes for a in _live.values()), _MEMORY


def malloc(size: int) -> int:
    if size > memGetInfo()[0]:
        raise CUDARuntimeError(2)
    memory = np.empty(size, np.uint8)
    with _lock:
        _live[memory.ctypes.data] = memory
        bisect.insort(_addresses, memory.ctypes.data)
    return memory.ctypes.data


def free(ptr: int) -> None:
    with _lock:
        if ptr not in _live:
            raise CUDARuntimeError(1)
        del _live[ptr]
        _addresses.remove(ptr)


def memcpyAsync(dst: int, src: int, size: int, kind: int, stream: int) -> None:
    array(dst if kind == memcpyHostToDevice else src, np.uint8, (size,), (1,))
    ctypes.memmove(dst, src, size)


def memcpyPeerAsync(dst: int, dstDevice: int, src: int, srcDevice: int, size: int, stream: int) -> None:
    for address in (dst, src):
        array(address, np.uint8, (size,), (1,))
    ctypes.memmove(dst, src, size)


def deviceCanAccessPeer(device: int, peerDevice: int) -> int:
    return int(device != peerDevice)


def deviceEnablePeerAccess(peerDevice: int) -> None:
    """No-op: all memory is the host's."""
