"""Stand-in for the part of CuPy that polyhal-cupy uses, for machines without it: CuPy's functions are NumPy's.

"Device memory" is host memory with addresses. Every access must be inside an allocation and in an entered stream, and
arguments that CUDA's libraries reject are rejected. All work is complete when a call returns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cupy import cuda

np.seterr(all="ignore")  # on a device, NaN and infinity are values, not errors
_ATOMIC = ("int32", "uint32", "uint64", "float16", "float32", "float64")


def __getattr__(name: str) -> Any:
    return getattr(np, name)


def ndarray(shape: tuple[int, ...], dtype: Any, memptr: cuda.MemoryPointer, strides: tuple[int, ...]) -> np.ndarray:
    """Return a view of device memory."""
    assert cuda.Stream.current() is not None, "arrays are used inside a stream"
    return cuda.runtime.array(memptr.ptr, dtype, shape, strides)


class _Add:
    def __call__(self, *args: Any, **options: Any) -> Any:
        return np.add(*args, **options)

    def at(self, a: np.ndarray, index: np.ndarray, values: np.ndarray) -> None:
        if a.dtype.name not in _ATOMIC:
            raise TypeError(f"cupy.add.at only supports {', '.join(_ATOMIC)}, not {a.dtype}")
        np.add.at(a, index, values)


add = _Add()


class _MemoryPool:
    def free_all_blocks(self) -> None:
        """No-op: NumPy keeps no blocks."""


def get_default_memory_pool() -> _MemoryPool:
    """Return the pool of temporaries."""
    return _MemoryPool()
