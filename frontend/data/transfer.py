"""Copies of batches to a device, through page-locked memory and overlapped with computation if the device supports that."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, ClassVar, Protocol

import numpy as np

from polyhal.data.dataset import LazyRows
from polyhal.data.staging import staged
from polyhal.hal import dtypes
from polyhal.hal.core.memory.buffer import Buffer
from polyhal.hal.core.memory.host_bytes import byte_view
from polyhal.hal.core.memory.pool import bucket
from polyhal.hal.core.memory.streams import Stream
from polyhal.hal.device import Device
from polyhal.hal.layout import Ref, Spec, contiguous
from polyhal.hal.ops.tensor_like import Array
from polyhal.hal.protocol import Event, SupportsPinnedMemory, SupportsStreams
from polyhal.tensor import Tensor, wrap

_ALIGNMENT = 64
"""Alignment in bytes of arrays in a slot, for the speed of copies."""


def map_arrays(batch: Array | Sequence[Array], function: Callable[[Any], Any]) -> Any:
    """Apply `function` to every array in `batch`, lazy or not; tuples, lists and dictionaries are inner nodes."""
    if isinstance(batch, (np.ndarray, LazyRows)):
        return function(batch)
    if isinstance(batch, dict):
        return {key: map_arrays(value, function) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        parts = [map_arrays(value, function) for value in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch


class BatchSlot(Protocol):
    """Staging memory for one batch. One thread loads slots, another one delivers batches and releases slots."""

    retained: ClassVar[int]
    """Number of the latest delivered batches that may still use the memory of their slots."""

    gathers: bool
    """True if `load` accepts `LazyRows` in place of arrays."""

    def load(self, batch: Any) -> None:
        """Load the arrays of a batch, after the previous batch was transferred."""

    def deliver(self) -> Any:
        """Return the batch with tensors in place of arrays, ready for use."""

    def release(self) -> None:
        """Allow reuse of the slot after all enqueued work. Memory that the program still references leaves the slot."""

    def wait(self) -> None:
        """Wait until no copy is in flight."""

    def release_memory(self) -> None:
        """Release device memory between two epochs, when no copy is in flight."""


class UploadSlot:
    """For devices without page-locked memory: arrays are uploaded on delivery."""

    retained: ClassVar[int] = 0
    gathers = False

    def __init__(self, device: Device) -> None:
        self._device = device
        self._batch: Any = None

    def load(self, batch: Sequence[Array]) -> None:
        self._batch = batch

    def deliver(self) -> Any:
        batch, self._batch = self._batch, None
        return map_arrays(batch, lambda array: Tensor(array, device=self._device))

    def release(self) -> None:
        """No-op: delivered batches own their memory."""

    def wait(self) -> None:
        """No-op: uploads are synchronous."""

    def release_memory(self) -> None:
        self._batch = None


class PinnedSlot:
    """Page-locked staging memory, filled by the loading thread; copies are ordered with the device's other work."""

    retained: ClassVar[int] = 0
    gathers = False

    def __init__(self, device: Device, backend: SupportsPinnedMemory) -> None:
        self._device = device
        self._pinned = backend
        self._memory: memoryview | None = None
        self._staged: Any = None
        self._events: list[Event] = []

    def load(self, batch: Sequence[Array]) -> None:
        self.wait()
        self._staged = self._stage(batch)

    def deliver(self) -> Any:
        return map_arrays(self._staged, self._send)

    def release(self) -> None:
        """No-op: delivered batches own their memory."""

    def wait(self) -> None:
        for event in self._events:
            event.wait()
        self._events.clear()
        self._staged = None

    def release_memory(self) -> None:
        """No-op: delivered batches own their memory."""

    def _stage(self, batch: Sequence[Array]) -> Any:
        """Copy the arrays of a batch to page-locked memory."""
        spans = self._spans(batch)

        def copy(array: np.ndarray) -> np.ndarray:
            staged = next(spans).view(array.dtype).reshape(array.shape)
            np.copyto(staged, array)
            return staged

        return map_arrays(batch, copy)

    def _spans(self, batch: Sequence[Array]) -> Iterator[np.ndarray]:
        """Yield a span of page-locked memory for each array of the batch, in order."""
        sizes: list[int] = []
        map_arrays(batch, lambda array: sizes.append(array.nbytes))
        starts = [0, *accumulate(-(-n // _ALIGNMENT) * _ALIGNMENT for n in sizes)]
        if self._memory is None or self._memory.nbytes < starts[-1]:
            self._memory = self._pinned.allocate_pinned(max(starts[-1], 1))
        pinned = np.frombuffer(self._memory, np.uint8)
        return (pinned[start : start + n] for start, n in zip(starts, sizes, strict=False))

    def _send(self, array: np.ndarray) -> Tensor:
        """Start copying a staged array to the device."""
        spec = _spec(self._device, array)
        buffer = self._memory_for(bucket(spec.nbytes))
        if array.size:
            source = byte_view(np.ascontiguousarray(array))
            self._events.append(self._pinned.copy_to_device_async(source, buffer.handle, 0))
        return wrap(self._device, buffer, Ref(buffer.handle, spec, 0))

    def _memory_for(self, size: int) -> Buffer:
        return self._device.pool.take(size)


class StreamSlot(PinnedSlot):
    """A slot from which the loading thread copies arrays on a separate stream, overlapped with computation.

    The slot reuses its device memory for its next batch, which is copied after the work on the last one is complete. Memory
    that the program still references is replaced, not reused.
    """

    retained: ClassVar[int] = 2

    def __init__(self, device: Device, backend: SupportsPinnedMemory, streams: SupportsStreams, stream: Stream) -> None:
        super().__init__(device, backend)
        self._streams = streams
        self._stream = stream
        # Page-locked memory speeds up transfers over a bus; with unified memory it would only add a copy.
        self.gathers = not device.capabilities.unified_memory
        self._buffers: list[Buffer] = []
        self._unused: Iterator[Buffer] = iter(())
        self._batch: Any = None
        self._ready: Event | None = None
        self._done: Event | None = None

    def load(self, batch: Sequence[Array]) -> None:
        self.wait()
        dependencies = [] if self._done is None else [self._done]
        if self._allocate(batch):
            # Work of previous owners of the new memory may be in flight.
            dependencies.append(self._streams.mark())
        self._unused = iter(self._buffers)
        if self.gathers:
            spans = self._spans(batch)
            transfer = lambda x: self._send_chunks(x, next(spans))  # noqa: E731
        else:
            self._staged = batch
            transfer = self._send
        with self._stream.selected():
            for event in dependencies:
                self._streams.wait_for(event)
            self._batch = map_arrays(batch, transfer)
            self._ready = self._streams.mark()

    def release_memory(self) -> None:
        self._buffers = []
        self._batch = self._ready = self._done = None

    def _send_chunks(self, x: np.ndarray | LazyRows, memory: np.ndarray) -> Tensor:
        """Stage an array in chunks, and start copying each to the device while the next is staged."""
        spec = _spec(self._device, x)
        buffer = self._memory_for(bucket(spec.nbytes))
        for start, end in staged(x, memory):
            chunk = byte_view(memory[start:end])
            self._events.append(self._pinned.copy_to_device_async(chunk, buffer.handle, start))
        return wrap(self._device, buffer, Ref(buffer.handle, spec, 0))

    def deliver(self) -> Any:
        batch, self._batch = self._batch, None
        if self._ready is not None:
            self._streams.wait_for(self._ready)
        return batch

    def release(self) -> None:
        buffers = self._buffers
        # One reference is from the list, one from the argument of getrefcount.
        self._buffers = [buffers[i] for i in range(len(buffers)) if sys.getrefcount(buffers[i]) <= 2]
        self._done = self._streams.mark()

    def _allocate(self, staged: Sequence[Array]) -> bool:
        """Provide device memory for each array, in order. Returns whether any of it is newly allocated."""
        sizes: list[int] = []
        map_arrays(staged, lambda array: sizes.append(bucket(_spec(self._device, array).nbytes)))
        spare, self._buffers = self._buffers, []
        new = False
        for size in sizes:
            reused = next((i for i, b in enumerate(spare) if b.nbytes == size), None)
            new = new or reused is None
            self._buffers.append(self._device.pool.take(size) if reused is None else spare.pop(reused))
        return new

    def _memory_for(self, size: int) -> Buffer:
        return next(self._unused)


def _spec(device: Device, array: np.ndarray | LazyRows) -> Spec:
    """Return the spec of an array on a device. Raises UnsupportedDTypeError."""
    dtype = dtypes.as_dtype(array.dtype)
    device.check_dtype(dtype)
    return contiguous(dtype, array.shape)


def slot_factory(device: Device) -> Callable[[], BatchSlot]:
    """Return the function that makes the slots of one loader."""
    backend = device.backend
    if not isinstance(backend, SupportsPinnedMemory) or device.stand_ins:  # uploads check that integers fit
        return lambda: UploadSlot(device)
    streams = device.stream_backend
    if streams is None:
        return lambda: PinnedSlot(device, backend)
    stream = device.stream()
    return lambda: StreamSlot(device, backend, streams, stream)
