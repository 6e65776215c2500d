"""Placement of inputs on a device in every kind of memory layout, surrounded by poison."""

from __future__ import annotations

import enum

import numpy as np

from polyhal.hal.device import Device
from polyhal.hal.dtypes import as_dtype
from polyhal.hal.layout import ALIGNMENT, Ref, Spec, contiguous_strides
from polyhal.hal.testing.kit.guards import poison, poison_pool
from polyhal.tensor import Tensor, wrap


class InputLayout(enum.StrEnum):
    """The memory layout of an input."""

    CONTIGUOUS = "contiguous"
    TRANSPOSED = "transposed"
    """Column-major: the axes are stored in reverse order."""
    STRIDED = "strided"
    """Every second element along every axis of a larger array."""
    BROADCAST = "broadcast"
    """Stride 0 along the first axis that is longer than 1; the values are made equal along it."""
    OFFSET = "offset"
    """Contiguous inside a larger buffer, on a vector boundary."""
    REVERSED = "reversed"
    """Negative strides along every axis."""
    UNALIGNED = "unaligned"
    """Contiguous, one element past a vector boundary."""


INPUT_LAYOUTS: tuple[InputLayout, ...] = tuple(InputLayout)


def values_in_layout(array: np.ndarray, layout: InputLayout) -> np.ndarray:
    """Return the values of `array` in `layout`: unchanged, except that BROADCAST repeats the first slice."""
    axis = _first_long_axis(array.shape)
    if layout is not InputLayout.BROADCAST or axis is None or not array.size:
        return array
    first = array[tuple(slice(0, 1) if i == axis else slice(None) for i in range(array.ndim))]
    return np.ascontiguousarray(np.broadcast_to(first, array.shape))


def place_input(array: np.ndarray, layout: InputLayout, device: Device) -> Tensor:
    """Return a tensor with the elements of `array`, a result of `values_in_layout`, in that layout."""
    dtype, (strides, offset) = as_dtype(array.dtype), _strides_and_offset(array.shape, layout)
    if not offset and strides == contiguous_strides(array.shape):
        poison_pool(device, [array.nbytes])  # the rest of the block must not hold the bits of an earlier guard zone
        buffer, ref = device.upload(array, dtype)
        return wrap(device, buffer, ref)
    reach = offset + sum((n - 1) * s for n, s in zip(array.shape, strides, strict=True) if s > 0 and n) + 1
    storage = poison(dtype, reach + ALIGNMENT)
    size = storage.itemsize
    places = np.ndarray(
        array.shape, storage.dtype, storage.view(np.uint8).data, offset * size, tuple(s * size for s in strides)
    )
    places[...] = array
    buffer, ref = device.upload(storage, dtype)
    return wrap(device, buffer, Ref(ref.handle, Spec(dtype, array.shape, strides, offset % ALIGNMENT == 0), offset))


def _first_long_axis(shape: tuple[int, ...]) -> int | None:
    return next((i for i, n in enumerate(shape) if n > 1), None)


def _strides_and_offset(shape: tuple[int, ...], layout: InputLayout) -> tuple[tuple[int, ...], int]:
    """Return the strides of an input of `shape`, and its offset in the buffer, in elements."""
    strides, offset = contiguous_strides(shape), 0
    if 0 in shape:
        return strides, offset
    match layout:
        case InputLayout.TRANSPOSED:
            strides = tuple(reversed(contiguous_strides(tuple(reversed(shape)))))
        case InputLayout.STRIDED:
            strides, step = (), 1
            for n in reversed(shape):
                strides, step = (step * 2, *strides), step * 2 * n
        case InputLayout.BROADCAST:
            axis = _first_long_axis(shape)
            if axis is not None:
                stored = tuple(1 if i == axis else n for i, n in enumerate(shape))
                strides = tuple(0 if i == axis else s for i, s in enumerate(contiguous_strides(stored)))
        case InputLayout.OFFSET:
            offset = 2 * ALIGNMENT
        case InputLayout.REVERSED:
            offset = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + ALIGNMENT
            strides = tuple(-s for s in strides)
        case InputLayout.UNALIGNED:
            offset = ALIGNMENT + 1
    return strides, offset
