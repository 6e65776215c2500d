"""Host memory as flat bytes, for copies of backends."""

from __future__ import annotations

import ctypes

import numpy as np


def byte_view(array: np.ndarray) -> memoryview:
    """Return the bytes of a contiguous array of any dtype, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def host_bytes(address: int, nbytes: int) -> np.ndarray:
    """Return the bytes at an address of this process as an array, without a copy. The caller keeps them alive."""
    return np.frombuffer(memoryview((ctypes.c_uint8 * nbytes).from_address(address)), np.uint8)
