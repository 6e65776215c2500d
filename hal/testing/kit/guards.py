"""Guard zones: poisoned memory around outputs, to detect stray writes.

A kernel that reads outside its input reads NaN (or an extreme integer) and produces a wrong result. A kernel that
writes outside its output, or leaves an element unwritten, changes or keeps poison that is checked afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhal.hal.core.memory.host_bytes import byte_view
from polyhal.hal.core.memory.pool import bucket
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ALIGNMENT, Ref, Spec, contiguous_strides
from polyhal.tensor import wrap


def poison(dtype: DType, size: int) -> np.ndarray:
    """Return elements that no correct result contains: NaN, an extreme integer, or alternating bools."""
    if dtype.is_floating_point:
        return np.full(size, np.nan).astype(dtype.numpy)
    if dtype.kind == "bool":
        return np.asarray(np.arange(size) % 2 == 0)
    return np.full(size, 0x5A, np.uint8).repeat(dtype.itemsize).view(dtype.numpy)[:size]


_PAYLOAD = {1: 0xA5, 2: 0x0015, 4: 0x0000A5A5, 8: 0x0000A5A5A5A5A5A5}
"""Bits, by element size, in which the NaN of a guard zone differs from the NaN around inputs."""


def guard_zone(dtype: DType, size: int) -> np.ndarray:
    """Return elements of a guard zone: like `poison`, but with bits that no kernel computes or copies from poisoned inputs."""
    bits = np.dtype(f"u{dtype.itemsize}")
    if dtype.is_floating_point:
        return np.asarray((poison(dtype, size).view(bits) | bits.type(_PAYLOAD[dtype.itemsize])).view(dtype.numpy))
    return np.full(size * dtype.itemsize, 0xA5, np.uint8).view(dtype.numpy)


class GuardedOutput:
    """An output inside a guard zone, `lead` elements after its start; `strided` leaves gaps between its elements.

    An op writes to `tensor`; `check` looks for changes outside it.
    """

    def __init__(self, spec: Spec, device: Device, lead: int, *, strided: bool = False) -> None:
        self._device = device
        self._lead = lead
        strides, self._span = contiguous_strides(spec.shape), spec.size
        if strided and spec.ndim:
            strides, self._span = tuple(s * 2 for s in strides), spec.size * 2
        self._before = guard_zone(spec.dtype, lead + self._span + ALIGNMENT)
        buffer, ref = device.upload(self._before, spec.dtype)
        self._whole = wrap(device, buffer, ref)
        self._strides = strides
        output = Spec(spec.dtype, spec.shape, strides, lead % ALIGNMENT == 0)
        self.tensor = wrap(device, buffer, Ref(ref.handle, output, lead))

    def check(self, what: str) -> None:
        """Raise AssertionError, with the first element, if memory outside the output was written."""
        after = self._whole.numpy()
        outside = np.ones(len(after), bool)
        if self.tensor.size:
            view = np.lib.stride_tricks.as_strided(
                outside[self._lead :], self.tensor.shape, tuple(s * outside.itemsize for s in self._strides)
            )
            view[...] = False
        size = self._before.itemsize
        before_bytes, after_bytes = (a.view(np.uint8).reshape(-1, size) for a in (self._before, after))
        changed = (before_bytes != after_bytes).any(1) & outside
        if changed.any():
            first = int(np.argmax(changed)) - self._lead
            raise AssertionError(
                f"{what}: wrote outside its output of {self.tensor.size} elements, first at element {first}"
            )


class GuardedTemporary:
    """A temporary of a launch in a separate block, followed by a guard zone."""

    _ZONE = 256
    """Bytes of the guard zone."""

    def __init__(self, nbytes: int, device: Device) -> None:
        self._device, self._nbytes = device, nbytes
        self._buffer = device.pool.take(bucket(nbytes + self._ZONE))
        self.handle = self._buffer.handle
        """Handle for the launch."""
        device.backend.copy_to_device(memoryview(b"\xa5" * (nbytes + self._ZONE)), self.handle, 0)

    def check(self, what: str) -> None:
        """Raise AssertionError if memory past the temporary was written."""
        zone = np.empty(self._ZONE, np.uint8)
        self._device.backend.copy_from_device(self.handle, self._nbytes, byte_view(zone))
        if (zone != 0xA5).any():
            first = int(np.argmax(zone != 0xA5))
            raise AssertionError(f"{what}: wrote past its temporary of {self._nbytes} bytes, first at byte +{first}")


def poison_pool(device: Device, sizes: Sequence[int]) -> None:
    """Fill the blocks that the pool will hand out next for outputs of `sizes` bytes with 0xFF, NaN in any float."""
    blocks: list[Any] = []
    for n in sizes:
        if n:
            block = device.pool.take(bucket(n))
            device.backend.copy_to_device(memoryview(b"\xff" * bucket(n)), block.handle, 0)
            blocks.append(block)
