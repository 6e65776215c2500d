"""Moving batches to a device: through page-locked memory and beside the device's other work, where it allows that."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, ClassVar, Protocol

import numpy as np

from polyhal.data.dataset import Rows
from polyhal.hal import dtypes
from polyhal.hal.device import Device
from polyhal.hal.layout import Ref, Spec, contiguous
from polyhal.hal.memory.buffer import Buffer
from polyhal.hal.memory.host_bytes import byte_view
from polyhal.hal.memory.pool import bucket
from polyhal.hal.memory.streams import Stream
from polyhal.hal.protocol import Event, Feature
from polyhal.tensor import Tensor, wrap

_ALIGNMENT = 64
"""Bytes between the starts of arrays in a slot, so that copies keep their speed."""


_PIECE = 1 << 20
"""Bytes that are put in page-locked memory before they are sent: the bus has something to do from then on."""


def map_arrays(batch: Any, function: Callable[[Any], Any]) -> Any:
    """`batch` with every array in it, read or not, replaced; tuples, lists and dictionaries keep their form."""
    if isinstance(batch, (np.ndarray, Rows)):
        return function(batch)
    if isinstance(batch, dict):
        return {key: map_arrays(value, function) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        parts = [map_arrays(value, function) for value in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch


class Slot(Protocol):
    """Room for one batch on its way to a device. One thread loads, another one takes batches and gives slots back."""

    held: ClassVar[int]
    """How many slots stay with batches that the program was given."""

    gathers: bool
    """Whether `load` takes `Rows` in place of arrays."""

    def load(self, batch: Any) -> None:
        """Take the arrays of a batch, after the last batch has left."""

    def deliver(self) -> Any:
        """The batch with tensors in place of arrays, which may be used at once."""

    def release(self) -> None:
        """Note that the program has enqueued what it does with the batch, unless it still refers to it."""

    def wait(self) -> None:
        """Block until no copy is under way."""

    def rest(self) -> None:
        """Let go of the device's memory, between two passes. No copy is under way."""


class PlainSlot:
    """For devices without page-locked memory: arrays are uploaded when they are asked for."""

    held: ClassVar[int] = 0
    gathers = False

    def __init__(self, device: Device) -> None:
        self._device = device
        self._batch: Any = None

    def load(self, batch: Any) -> None:
        self._batch = batch

    def deliver(self) -> Any:
        batch, self._batch = self._batch, None
        return map_arrays(batch, lambda array: Tensor(array, device=self._device))

    def release(self) -> None:
        """The batch has memory of its own."""

    def wait(self) -> None:
        """Nothing is under way."""

    def rest(self) -> None:
        self._batch = None


class PinnedSlot:
    """Arrays are put in page-locked memory by the loading thread, and copied in line with the device's other work."""

    held: ClassVar[int] = 0
    gathers = False

    def __init__(self, device: Device) -> None:
        self._device = device
        self._memory: memoryview | None = None
        self._staged: Any = None
        self._events: list[Event] = []

    def load(self, batch: Any) -> None:
        self.wait()
        self._staged = self._stage(batch)

    def deliver(self) -> Any:
        return map_arrays(self._staged, self._send)

    def release(self) -> None:
        """The batch has memory of its own."""

    def wait(self) -> None:
        for event in self._events:
            event.wait()
        self._events.clear()
        self._staged = None

    def rest(self) -> None:
        """Batches have memory of their own."""

    def _stage(self, batch: Any) -> Any:
        """The batch with its arrays in page-locked memory."""
        place = self._places(batch)

        def copy(array: np.ndarray) -> np.ndarray:
            staged = next(place).view(array.dtype).reshape(array.shape)
            np.copyto(staged, array)
            return staged

        return map_arrays(batch, copy)

    def _places(self, batch: Any) -> Iterator[np.ndarray]:
        """A place in page-locked memory for each array of the batch, in order."""
        sizes: list[int] = []
        map_arrays(batch, lambda array: sizes.append(array.nbytes))
        starts = [0, *accumulate(-(-n // _ALIGNMENT) * _ALIGNMENT for n in sizes)]
        if self._memory is None or self._memory.nbytes < starts[-1]:
            self._memory = self._device.backend.allocate_pinned(max(starts[-1], 1))  # type: ignore[attr-defined]
        pinned = np.frombuffer(self._memory, np.uint8)
        return (pinned[start : start + n] for start, n in zip(starts, sizes, strict=False))

    def _send(self, array: np.ndarray) -> Tensor:
        """Start copying a staged array to the device."""
        spec = _spec(self._device, array)
        buffer = self._memory_for(bucket(spec.nbytes))
        if array.size:
            backend: Any = self._device.backend
            source = byte_view(np.ascontiguousarray(array))
            self._events.append(backend.copy_to_device_async(source, buffer.handle, 0))
        return wrap(self._device, buffer, Ref(buffer.handle, spec, 0))

    def _memory_for(self, size: int) -> Buffer:
        return self._device.pool.take(size)


class StreamSlot(PinnedSlot):
    """Arrays are copied on a stream beside the program's by the loading thread, while the device computes.

    The slot keeps its device memory for its next batch, which is copied when the work on the last one is done. What the
    program still refers to by then is left to it, and other memory taken.
    """

    held: ClassVar[int] = 2

    def __init__(self, device: Device, stream: Stream) -> None:
        super().__init__(device)
        self._backend: Any = device.backend
        self._stream = stream
        # Page-locked memory is for a bus to read; where there is none, it would be one copy more.
        self.gathers = not device.capabilities.unified_memory
        self._buffers: list[Buffer] = []
        self._unused: Iterator[Buffer] = iter(())
        self._batch: Any = None
        self._ready: Event | None = None
        self._done: Event | None = None

    def load(self, batch: Any) -> None:
        self.wait()
        before = [] if self._done is None else [self._done]
        if self._provide(batch):
            # Work on what lay in the new memory may still be under way.
            before.append(self._backend.mark())
        self._unused = iter(self._buffers)
        if self.gathers:
            place = self._places(batch)
            bring = lambda x: self._send_pieces(x, next(place))  # noqa: E731
        else:
            self._staged = batch
            bring = self._send
        with self._stream.selected():
            for event in before:
                self._backend.wait_for(event)
            self._batch = map_arrays(batch, bring)
            self._ready = self._backend.mark()

    def rest(self) -> None:
        self._buffers = []
        self._batch = self._ready = self._done = None

    def _send_pieces(self, x: np.ndarray | Rows, staged: np.ndarray) -> Tensor:
        """Put an array in page-locked memory, and start copying each piece to the device while the next is put there."""
        spec = _spec(self._device, x)
        buffer = self._memory_for(bucket(spec.nbytes))
        for start, end in _staging(x, staged):
            piece = byte_view(staged[start:end])
            self._events.append(self._backend.copy_to_device_async(piece, buffer.handle, start))
        return wrap(self._device, buffer, Ref(buffer.handle, spec, 0))

    def deliver(self) -> Any:
        batch, self._batch = self._batch, None
        self._backend.wait_for(self._ready)
        return batch

    def release(self) -> None:
        buffers = self._buffers
        # One reference is the list's, one the argument of getrefcount.
        self._buffers = [buffers[i] for i in range(len(buffers)) if sys.getrefcount(buffers[i]) <= 2]
        self._done = self._backend.mark()

    def _provide(self, staged: Any) -> bool:
        """Have memory for each array, in order; whether some of it is new."""
        sizes: list[int] = []
        map_arrays(staged, lambda array: sizes.append(bucket(_spec(self._device, array).nbytes)))
        spare, self._buffers = self._buffers, []
        new = False
        for size in sizes:
            found = next((i for i, b in enumerate(spare) if b.nbytes == size), None)
            new = new or found is None
            self._buffers.append(self._device.pool.take(size) if found is None else spare.pop(found))
        return new

    def _memory_for(self, size: int) -> Buffer:
        return next(self._unused)


def _staging(x: np.ndarray | Rows, staged: np.ndarray) -> Iterator[tuple[int, int]]:
    """Copy an array into the bytes `staged`; first and last byte of each piece when it is there."""
    if isinstance(x, Rows):
        rows = staged.view(x.dtype).reshape(x.shape)
        size = x.nbytes // max(len(rows), 1)
        step = max(1, _PIECE // max(size, 1))
        for begin in range(0, len(rows) if size else 0, step):
            end = min(begin + step, len(rows))
            x.read(begin, end, rows[begin:end])
            yield begin * size, end * size
        return
    source = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    for start in range(0, x.nbytes, _PIECE):
        end = min(start + _PIECE, x.nbytes)
        np.copyto(staged[start:end], source[start:end])
        yield start, end


def _spec(device: Device, array: np.ndarray | Rows) -> Spec:
    """What an array is on a device. Raises UnsupportedDTypeError."""
    dtype = dtypes.as_dtype(array.dtype)
    device.check_dtype(dtype)
    return contiguous(dtype, array.shape)


def slot_maker(device: Device) -> Callable[[], Slot]:
    """What makes the slots of one loader."""
    if not device.features & Feature.PINNED_MEMORY:
        return lambda: PlainSlot(device)
    if not device.features & Feature.STREAMS:
        return lambda: PinnedSlot(device)
    stream = device.stream()
    return lambda: StreamSlot(device, stream)
