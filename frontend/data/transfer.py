"""Moving batches to a device.

Through page-locked memory where the device has it, so that copying overlaps computing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.device import Device
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.plan import byte_view
from polyhal.hal.pool import bucket
from polyhal.hal.protocol import Ability
from polyhal.tensor import Tensor, wrap

_ALIGNMENT = 64
"""Bytes between the starts of arrays in a slot, so that copies keep their speed."""


def map_arrays(batch: Any, function: Callable[[np.ndarray], Any]) -> Any:
    """`batch` with every array in it replaced; tuples, lists and dictionaries keep their form."""
    if isinstance(batch, np.ndarray):
        return function(batch)
    if isinstance(batch, dict):
        return {key: map_arrays(value, function) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        parts = [map_arrays(value, function) for value in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch


class Slot:
    """Page-locked memory for one batch. Filled by the loading thread, emptied by the thread that trains."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._memory: memoryview | None = None
        self._events: list[Any] = []

    def stage(self, batch: Any) -> Any:
        """Copy the arrays of a batch into page-locked memory, after the previous batch has left it."""
        self.wait()
        total = 0

        def measure(array: np.ndarray) -> None:
            nonlocal total
            total += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT

        map_arrays(batch, measure)
        if self._memory is None or self._memory.nbytes < total:
            self._memory = self._device.backend.allocate_pinned(max(total, 1))  # type: ignore[attr-defined]
        pinned = np.frombuffer(self._memory, np.uint8)
        start = 0

        def copy(array: np.ndarray) -> np.ndarray:
            nonlocal start
            staged = pinned[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
            np.copyto(staged, array)
            start += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
            return staged

        return map_arrays(batch, copy)

    def upload(self, staged: Any) -> Any:
        """Start copying a staged batch to the device; its tensors may be used at once, as the device works in order."""
        backend, pool = self._device.backend, self._device.pool

        def send(array: np.ndarray) -> Tensor:
            dtype = dtypes.as_dtype(array.dtype)
            self._device.check_dtype(dtype)
            spec = contiguous(dtype, array.shape)
            buffer = pool.take(bucket(spec.nbytes))
            if array.size:
                source = byte_view(array)
                self._events.append(backend.copy_to_device_async(source, buffer.handle, 0))  # type: ignore[attr-defined]
            return wrap(self._device, buffer, Ref(buffer.handle, spec, 0))

        return map_arrays(staged, send)

    def wait(self) -> None:
        """Block until the device has taken everything."""
        for event in self._events:
            event.wait()
        self._events.clear()


class PlainSlot:
    """The same for devices without page-locked memory: arrays are uploaded as they are."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def stage(self, batch: Any) -> Any:
        """The batch itself."""
        return batch

    def upload(self, staged: Any) -> Any:
        """Copy a batch to the device."""
        return map_arrays(staged, lambda array: Tensor(array, device=self._device))

    def wait(self) -> None:
        """Nothing is under way."""


def make_slot(device: Device) -> Slot | PlainSlot:
    """Room for one batch on its way to `device`."""
    return Slot(device) if device.abilities & Ability.PINNED_MEMORY else PlainSlot(device)
