"""Placing arrays on a device in every kind of layout, with poison in all the memory that does not belong to them.

A kernel that reads beside its input meets NaN (or an outlandish integer) and gives a wrong result; one that writes
beside its output, or leaves an element unwritten, changes or keeps poison that is looked for afterwards.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.hal.layout import ALIGNMENT, Ref, Spec, contiguous_strides
from polyhal.hal.memory.pool import bucket
from polyhal.tensor import Tensor, wrap


class Arrangement(enum.StrEnum):
    """How the elements of an input lie in memory."""

    CONTIGUOUS = "contiguous"
    TRANSPOSED = "transposed"
    """Column-major: the axes are stored in reverse order."""
    STEPPED = "stepped"
    """Every second element along every axis of a larger array."""
    BROADCAST = "broadcast"
    """Stride 0 along the first axis that is longer than 1; the values are made equal along it."""
    OFFSET = "offset"
    """Contiguous inside a larger buffer, on a vector boundary."""
    REVERSED = "reversed"
    """Negative strides along every axis."""
    UNALIGNED = "unaligned"
    """Contiguous, one element past a vector boundary."""


ARRANGEMENTS: tuple[Arrangement, ...] = tuple(Arrangement)


def poison(dtype: DType, size: int) -> np.ndarray:
    """Elements that no correct result holds: NaN, a far-off integer, or alternating bools."""
    if dtype.is_floating_point:
        return np.full(size, np.nan).astype(dtype.numpy)
    if dtype.kind == "bool":
        return np.asarray(np.arange(size) % 2 == 0)
    return np.full(size, 0x5A, np.uint8).repeat(dtype.itemsize).view(dtype.numpy)[:size]


def adapted(array: np.ndarray, arrangement: Arrangement) -> np.ndarray:
    """The values that `array` takes in `arrangement`: its own, except that broadcasting repeats the first slice."""
    axis = next((i for i, n in enumerate(array.shape) if n > 1), None)
    if arrangement is not Arrangement.BROADCAST or axis is None or not array.size:
        return array
    first = array[tuple(slice(0, 1) if i == axis else slice(None) for i in range(array.ndim))]
    return np.ascontiguousarray(np.broadcast_to(first, array.shape))


def arrange(array: np.ndarray, arrangement: Arrangement, device: Device) -> Tensor:
    """A tensor with the elements of `array`, which is `adapted`, laid out as asked."""
    return _placed(array, as_dtype(array.dtype), *_layout(array.shape, arrangement), device)


def _layout(shape: tuple[int, ...], arrangement: Arrangement) -> tuple[tuple[int, ...], int]:
    """The strides, and the offset into its buffer, of an input of `shape` in `arrangement`, in elements."""
    strides, offset = contiguous_strides(shape), 0
    if 0 in shape:
        return strides, offset
    match arrangement:
        case Arrangement.TRANSPOSED:
            strides = tuple(reversed(contiguous_strides(tuple(reversed(shape)))))
        case Arrangement.STEPPED:
            strides, step = (), 1
            for n in reversed(shape):
                strides, step = (step * 2, *strides), step * 2 * n
        case Arrangement.BROADCAST:
            axis = next((i for i, n in enumerate(shape) if n > 1), None)
            if axis is not None:
                stored = tuple(1 if i == axis else n for i, n in enumerate(shape))
                strides = tuple(0 if i == axis else s for i, s in enumerate(contiguous_strides(stored)))
        case Arrangement.OFFSET:
            offset = 2 * ALIGNMENT
        case Arrangement.REVERSED:
            offset = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + ALIGNMENT
            strides = tuple(-s for s in strides)
        case Arrangement.UNALIGNED:
            offset = ALIGNMENT + 1
    return strides, offset


def _placed(array: np.ndarray, dtype: DType, strides: tuple[int, ...], offset: int, device: Device) -> Tensor:
    reach = offset + sum((n - 1) * s for n, s in zip(array.shape, strides, strict=True) if s > 0 and n) + 1
    plain = not offset and strides == contiguous_strides(array.shape)
    if plain:
        buffer, ref = device.upload(array, dtype)
        return wrap(device, buffer, ref)
    store = poison(dtype, reach + ALIGNMENT)
    positions = np.full(array.shape, offset, np.int64)
    for axis, stride in enumerate(strides):
        positions += (np.arange(array.shape[axis]) * stride).reshape(-1, *(1,) * (array.ndim - axis - 1))
    store[positions.reshape(-1)] = array.reshape(-1)
    buffer, ref = device.upload(store, dtype)
    spec = Spec(dtype, array.shape, strides, offset % ALIGNMENT == 0)
    return wrap(device, buffer, Ref(ref.handle, spec, offset))


class Guarded:
    """An output inside a poisoned buffer. `tensor` is what an op writes to; `check` looks at the poison around it."""

    def __init__(self, spec: Spec, device: Device, lead: int, *, strided: bool = False) -> None:
        self._device = device
        self._lead = lead
        strides, self._span = contiguous_strides(spec.shape), spec.size
        if strided and spec.ndim:
            strides, self._span = tuple(s * 2 for s in strides), spec.size * 2
        self._before = poison(spec.dtype, lead + self._span + ALIGNMENT)
        buffer, ref = device.upload(self._before, spec.dtype)
        self._whole = wrap(device, buffer, ref)
        self._strides = strides
        self.tensor = wrap(
            device, buffer, Ref(ref.handle, Spec(spec.dtype, spec.shape, strides, lead % ALIGNMENT == 0), lead)
        )

    def check(self, what: str) -> None:
        """Raise AssertionError if anything outside the output was written."""
        after = self._whole.numpy()
        outside = np.ones(len(after), bool)
        if self.tensor.size:
            view = np.lib.stride_tricks.as_strided(
                outside[self._lead :], self.tensor.shape, tuple(s * outside.itemsize for s in self._strides)
            )
            view[...] = False
        size = self._before.itemsize
        changed = (self._before.view(np.uint8).reshape(-1, size) != after.view(np.uint8).reshape(-1, size)).any(
            1
        ) & outside
        if changed.any():
            first = int(np.argmax(changed)) - self._lead
            raise AssertionError(
                f"{what}: wrote outside its output of {self.tensor.size} elements, first at element {first}"
            )


def poison_pool(device: Device, sizes: Sequence[int]) -> None:
    """Fill the blocks that the pool will hand out next for outputs of `sizes` bytes with bytes of 0xFF, NaN in any
    float.
    """
    blocks: list[Any] = []
    for n in sizes:
        if n:
            block = device.pool.take(bucket(n))
            device.backend.copy_to_device(memoryview(b"\xff" * bucket(n)), block.handle, 0)
            blocks.append(block)
