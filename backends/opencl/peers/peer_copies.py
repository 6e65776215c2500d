"""How one OpenCL device copies from another: which ways there are between two devices, and which is taken."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl

from polyhal.backends.common.launching.completion import Finished
from polyhal.backends.opencl.device_runtime import DeviceRuntime
from polyhal.backends.opencl.events import OpenCLCopy
from polyhal.backends.opencl.lowering.collective.exchange import NOTHING, Exchange, Geometry, Range
from polyhal.backends.opencl.memory import OpenCLMemory
from polyhal.backends.opencl.peers.exchange import Exchanger
from polyhal.backends.opencl.peers.exported_memory import ExportedMemory, open_exported_memory
from polyhal.backends.opencl.peers.windows import open_windows
from polyhal.hal import dtypes
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.protocol import CompletionEvent

GEOMETRY = Geometry(channels=64, group=512, slot=128 << 10)
"""Half the channels of collectives, since windows of each pair take memory."""
_UNITS = (dtypes.uint64, dtypes.uint32, dtypes.uint16, dtypes.uint8)
_opening = threading.Lock()

Way = Callable[[cl.Buffer, int, cl.Buffer, int, int], CompletionEvent]
"""Copies from a peer: its buffer and offset, own buffer and offset, bytes."""


class PeerCopies:
    """The copies of one device from its peers."""

    def __init__(self, runtime: DeviceRuntime, memory: OpenCLMemory) -> None:
        self.runtime = runtime
        self.memory = memory
        self._ways: weakref.WeakKeyDictionary[PeerCopies, Way | None] = weakref.WeakKeyDictionary()
        self.exchangers: dict[object, tuple[Exchanger, object]] = {}
        """Those of groups that this device is the first of, each with what keeps its key alive."""
        self._exportable: ExportedMemory | None = None
        self._opened = False
        """Whether it was asked for."""
        self._lock = threading.Lock()

    def accepts(self, peer: PeerCopies) -> bool:
        """Return whether there is a way from `peer` to this device."""
        return self._way(peer) is not None

    def copy(
        self, peer: PeerCopies, src: cl.Buffer, src_offset: int, dst: cl.Buffer, dst_offset: int, nbytes: int
    ) -> CompletionEvent:
        """Start a copy, as `SupportsPeerCopy` says. Raises the typed error of a driver that refuses."""
        way = self._way(peer)
        assert way is not None
        try:
            return way(src, src_offset, dst, dst_offset, nbytes)
        except cl.Error as error:
            action = f"copying {nbytes} bytes from {peer.runtime.info.name}"
            raise self.runtime.errors.translate(error, action) from error

    def exports(self) -> ExportedMemory | None:
        """Return the device's exported memory, in which large allocations are made from now on; None if it has none."""
        self.memory.exported = self.exportable()
        return self.memory.exported

    def exportable(self) -> ExportedMemory | None:
        """Return the device's exported memory, for some allocations only; None if it has none."""
        with self._lock:
            if not self._opened:
                self._opened = True
                self._exportable = open_exported_memory(self.runtime)
        return self._exportable

    def _way(self, peer: PeerCopies) -> Way | None:
        try:
            return self._ways[peer]
        except KeyError:
            with _opening:
                if peer not in self._ways:
                    self._find_ways(peer)
                return self._ways[peer]

    def _find_ways(self, peer: PeerCopies) -> None:
        """Find the ways between two devices in both directions."""
        own, other = weakref.proxy(self), weakref.proxy(peer)
        if peer.runtime.context == self.runtime.context:
            self._ways[peer] = _WithinContext(other, own).copy
            peer._ways[self] = _WithinContext(own, other).copy
            return
        windows = open_windows([self, peer], None, GEOMETRY.window_bytes(2))
        if windows is not None:
            exchanger = Exchanger([self.runtime, peer.runtime], windows, GEOMETRY)
            self._ways[peer] = _ByKernels(other, own, exchanger, 1).copy
            peer._ways[self] = _ByKernels(own, other, exchanger, 0).copy
            return
        cpus = self.runtime.features.cpu and peer.runtime.features.cpu
        self._ways[peer] = _FromMapped(other, own).copy if cpus else None
        peer._ways[self] = _FromMapped(own, other).copy if cpus else None


class _WithinContext:
    """The driver copies: its queues can wait for each other."""

    def __init__(self, source: PeerCopies, target: PeerCopies) -> None:
        self._source = source
        self._target = target

    def copy(self, src: cl.Buffer, src_offset: int, dst: cl.Buffer, dst_offset: int, nbytes: int) -> CompletionEvent:
        """See `Way`."""
        runtime, memory = self._target.runtime, self._target.memory
        queue, source = runtime.queues.current(), self._source.runtime.queues.current()
        if source is not queue:
            _ = source.native  # what it waits for comes first
            queue.wait_for(source.mark())
        event = cl.enqueue_copy(
            queue.native, dst, src, byte_count=nbytes, src_offset=src_offset, dst_offset=dst_offset
        )
        queue.native.flush()
        if source is not queue:
            source.wait_for(event)
            _ = source.native
        return OpenCLCopy(runtime, event, lambda: memory.pending_reads(queue))


class _ByKernels:
    """Kernels of both devices, of which one writes to the memory of the other."""

    def __init__(self, source: PeerCopies, target: PeerCopies, exchanger: Exchanger, sender: int) -> None:
        self._source = source
        self._target = target
        self._exchanger = exchanger
        self._sender = sender
        """The number of the device that sends, 0 or 1."""

    def copy(self, src: cl.Buffer, src_offset: int, dst: cl.Buffer, dst_offset: int, nbytes: int) -> CompletionEvent:
        """See `Way`."""
        runtime, memory = self._target.runtime, self._target.memory
        unit = next(u for u in _UNITS if not (src_offset | dst_offset | nbytes) % u.itemsize)
        size = nbytes // unit.itemsize
        source = Ref(src, contiguous(unit, (size,)), src_offset // unit.itemsize)
        target = Ref(dst, source.spec, dst_offset // unit.itemsize)
        nothing, whole = (NOTHING, NOTHING), Range(0, size)
        sends = (NOTHING, whole) if self._sender == 0 else (whole, NOTHING)
        receives = (whole, NOTHING) if self._sender == 0 else (NOTHING, whole)
        exchanges = [Exchange(sends, nothing, size), Exchange(nothing, receives, size)]
        memory_of = [source, target]
        if self._sender:
            exchanges.reverse()
            memory_of.reverse()
        ends = self._exchanger.run(exchanges, memory_of, memory_of)
        queue = runtime.queues.current()
        sent = self._source.runtime.context, ends[self._sender]
        return OpenCLCopy(runtime, ends[1 - self._sender], lambda: memory.pending_reads(queue), sent)


class _FromMapped:
    """The driver of a processor copies from the peer's own memory, which the host sees: one copy where the host takes two."""

    def __init__(self, source: PeerCopies, target: PeerCopies) -> None:
        self._source = source
        self._target = target

    def copy(self, src: cl.Buffer, src_offset: int, dst: cl.Buffer, dst_offset: int, nbytes: int) -> CompletionEvent:
        """See `Way`."""
        peer, runtime = self._source.runtime, self._target.runtime
        source = peer.queue
        access: Any = cl.map_flags.READ
        with peer.waiting():
            mapped: Any
            mapped, _ = cl.enqueue_map_buffer(
                source, src, access, src_offset, (nbytes,), np.dtype(np.uint8), is_blocking=True
            )
        with runtime.waiting():
            cl.enqueue_copy(runtime.queue, dst, mapped, dst_offset=dst_offset, is_blocking=True)
        mapped.base.release(source)
        return Finished()
