"""Device memory that programs and host functions share: bytes on the host, or an array of JAX in their place."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from polyhal.hal.layout import Ref


class Memory:
    """An allocation. A program's result is stored as it is, without a copy, until a host function needs the bytes.

    `value` holds the first `size` bytes of the allocation. They differ from the bytes of `host` if that `is_stale`.
    """

    __slots__ = ("host", "is_stale", "nbytes", "size", "value")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.host: np.ndarray | None = None
        self.value: Any = None
        self.size = 0
        self.is_stale = False

    def bytes(self, *, changed: bool) -> np.ndarray:
        """Return all bytes on the host; `changed` says that the caller writes some of them."""
        host = self.host
        if host is None:
            host = self.host = np.empty(self.nbytes, np.uint8)
        if self.is_stale:
            host[: self.size] = elements(self.value)
            self.is_stale = False
        if changed:
            self.value = None
        return host

    def read(self, offset: int, nbytes: int) -> np.ndarray:
        """Return some bytes for reading, after the program that computes them."""
        if self.is_stale and offset + nbytes <= self.size:
            return elements(self.value)[offset : offset + nbytes]
        return self.bytes(changed=False)[offset : offset + nbytes]

    def array(self, ref: Ref) -> Any:
        """Return the elements of a contiguous reference as an array of JAX."""
        value, kind = self.value, ref.dtype.numpy
        if value is not None and ref.offset == 0 and value.shape == ref.shape and value.dtype == kind:
            return value
        start = ref.offset * kind.itemsize
        size = ref.size * kind.itemsize
        # JAX may use the memory of NumPy's arrays, which changes.
        made = jax.numpy.array(self.read(start, size).view(kind).reshape(ref.shape), copy=True)
        if start == 0 and not self.is_stale:
            self.value, self.size = made, size
        return made

    def store(self, ref: Ref, value: Any) -> None:
        """Store a program's result in the place of a contiguous reference."""
        nbytes = ref.spec.nbytes
        if ref.offset == 0 and (not self.is_stale or self.size <= nbytes):
            self.value, self.size, self.is_stale = value, nbytes, True
        else:
            start = ref.offset * ref.dtype.itemsize
            self.bytes(changed=True)[start : start + nbytes] = elements(value)


def elements(value: Any) -> np.ndarray:
    """Return the bytes of an array of JAX, which are read-only."""
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8)


def view(ref: Ref, *, changed: bool = False) -> np.ndarray:
    """Return the elements of a reference with any strides, on the host."""
    kind = ref.dtype.numpy
    strides = tuple(step * kind.itemsize for step in ref.strides)
    memory: Memory = ref.handle
    return np.ndarray(ref.shape, kind, memory.bytes(changed=changed), ref.offset * kind.itemsize, strides)
