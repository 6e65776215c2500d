"""Copies between OpenCL devices: possible paths between two devices, and the choice among them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl

from polyhal.backends.common.cuda_driver import CudaError
from polyhal.backends.common.launching.completion import Finished
from polyhal.backends.opencl.device_runtime import DeviceRuntime
from polyhal.backends.opencl.events import OpenCLCopy
from polyhal.backends.opencl.memory import OpenCLMemory
from polyhal.backends.opencl.peers.exported_memory import ExportedMemory, open_exported_memory
from polyhal.backends.opencl.queues import CommandQueue
from polyhal.backends.opencl_c.collectives.exchanger import Exchanger
from polyhal.backends.opencl_c.collectives.windows import open_windows
from polyhal.backends.opencl_c.lowering.collective.exchange import NOTHING, Exchange, Geometry, Range
from polyhal.hal import dtypes
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.protocol import CompletionEvent

GEOMETRY = Geometry(channels=64, group=512, slot=128 << 10)
"""Half the channels of collectives, because each pair's windows take memory."""
_UNITS = (dtypes.uint64, dtypes.uint32, dtypes.uint16, dtypes.uint8)
_opening = threading.Lock()

CopyPath = Callable[["PeerCopies", cl.Buffer, int, cl.Buffer, int, int], CompletionEvent]
"""Function that copies from a peer: peer's buffer and offset, own buffer and offset, bytes."""


class PeerCopies:
    """Copies of one device from its peers. Implements `Participant` of `backends.opencl_c.collectives`."""

    failures = (cl.Error, CudaError)
    """Exceptions of the drivers."""
    recordable = False
    """See `Participant`: other processes wait for a rendezvous, which depends on the size of an exchange."""

    def __init__(self, runtime: DeviceRuntime, memory: OpenCLMemory) -> None:
        self.runtime = runtime
        self.memory = memory
        self._paths: weakref.WeakKeyDictionary[PeerCopies, CopyPath | None] = weakref.WeakKeyDictionary()
        self.exchangers: dict[object, tuple[Exchanger | None, object]] = {}
        """Exchangers of groups whose first device this is, None if exchanges fail, with objects that keep keys alive."""
        self._exportable: ExportedMemory | None = None
        self._opened = False
        """True if exported memory has been requested."""
        self._lock = threading.Lock()

    def accepts(self, peer: PeerCopies) -> bool:
        """Return whether a path from `peer` to this device exists."""
        return self._path(peer) is not None

    def copy(
        self, peer: PeerCopies, src: cl.Buffer, src_offset: int, dst: cl.Buffer, dst_offset: int, nbytes: int
    ) -> CompletionEvent:
        """Start a copy (see `SupportsPeerCopy`). Raises the typed error of a driver that refuses."""
        path = self._path(peer)
        assert path is not None
        try:
            return path(peer, src, src_offset, dst, dst_offset, nbytes)
        except cl.Error as error:
            action = f"copying {nbytes} bytes from {peer.runtime.info.name}"
            raise self.runtime.errors.translate(error, action) from error

    def exports(self) -> ExportedMemory | None:
        """Return the device's exported memory, and use it for later large allocations; None if it is not supported."""
        self.memory.exported = self.window_memory()
        return self.memory.exported

    def window_memory(self) -> ExportedMemory | None:
        """Return the device's exported memory, for individual allocations; None if the device does not support it."""
        with self._lock:
            if not self._opened:
                self._opened = True
                self._exportable = open_exported_memory(self.runtime)
        return self._exportable

    def recording(self) -> bool:
        """Return False: exchanges are not recorded."""
        return False

    def stream(self) -> CommandQueue:
        """Return the stream of the calling thread."""
        return self.runtime.queues.current()

    def make_room(self, launches: int) -> None:
        """End the batch of launches now if it would end within the next `launches`."""
        self.stream().make_room(launches)

    def mark(self, again: cl.Event | None = None) -> cl.Event:
        """Return an event after everything enqueued so far on the thread's stream."""
        return self.stream().mark()

    def wait_for(self, event: cl.Event) -> None:
        """Make later work on the thread's stream wait for an event."""
        self.stream().wait_for(event)

    def flush(self) -> None:
        """Submit everything enqueued so far on the thread's stream."""
        self.runtime.queue.flush()

    def _path(self, peer: PeerCopies) -> CopyPath | None:
        try:
            return self._paths[peer]
        except KeyError:
            with _opening:
                if peer not in self._paths:
                    self._find_paths(peer)
                return self._paths[peer]

    def _find_paths(self, peer: PeerCopies) -> None:
        """Find the paths between two devices in both directions."""
        if peer.runtime.context == self.runtime.context:
            self._paths[peer], peer._paths[self] = self._within_context, peer._within_context
        elif (windows := open_windows([self, peer], None, GEOMETRY.window_bytes(2))) is not None:
            exchanger = Exchanger([self, peer], windows, GEOMETRY)
            self._paths[peer] = partial(self._by_kernels, exchanger, 1)
            peer._paths[self] = partial(peer._by_kernels, exchanger, 0)
        else:
            cpus = self.runtime.features.cpu and peer.runtime.features.cpu
            self._paths[peer] = self._from_mapped if cpus else None
            peer._paths[self] = peer._from_mapped if cpus else None

    def _within_context(
        self, peer: PeerCopies, src: cl.Buffer, src_offset: int, dst: cl.Buffer, dst_offset: int, nbytes: int
    ) -> CompletionEvent:
        """Let the driver copy: its queues can wait for each other."""
        queue, source = self.runtime.queues.current(), peer.runtime.queues.current()
        if source is not queue:
            _ = source.native  # enqueue its pending waits first
            queue.wait_for(source.mark())
        event = cl.enqueue_copy(queue.native, dst, src, byte_count=nbytes, src_offset=src_offset, dst_offset=dst_offset)
        queue.native.flush()
        if source is not queue:
            source.wait_for(event)
            _ = source.native
        return OpenCLCopy(self.runtime, event, lambda: self.memory.pending_reads(queue))

    def _by_kernels(
        self,
        exchanger: Exchanger,
        sender: int,
        peer: PeerCopies,
        src: cl.Buffer,
        src_offset: int,
        dst: cl.Buffer,
        dst_offset: int,
        nbytes: int,
    ) -> CompletionEvent:
        """Copy by kernels on both devices; the peer's kernel, participant `sender`, writes to this device's window."""
        unit = next(u for u in _UNITS if not (src_offset | dst_offset | nbytes) % u.itemsize)
        size = nbytes // unit.itemsize
        spec = contiguous(unit, (size,))
        nothing, whole = (NOTHING, NOTHING), Range(0, size)
        to_receiver = (NOTHING, whole) if sender == 0 else (whole, NOTHING)
        from_sender = to_receiver[::-1]
        exchanges = [Exchange(to_receiver, nothing, size), Exchange(nothing, from_sender, size)]
        memory = [Ref(src, spec, src_offset // unit.itemsize), Ref(dst, spec, dst_offset // unit.itemsize)]
        if sender:
            exchanges.reverse()
            memory.reverse()
        ends = exchanger.run(exchanges, memory, memory)
        queue, sent = self.runtime.queues.current(), (peer.runtime.context, ends[sender])
        return OpenCLCopy(self.runtime, ends[1 - sender], lambda: self.memory.pending_reads(queue), sent)

    def _from_mapped(
        self, peer: PeerCopies, src: cl.Buffer, src_offset: int, dst: cl.Buffer, dst_offset: int, nbytes: int
    ) -> CompletionEvent:
        """Write to this device directly from the peer's memory, mapped to the host: one copy instead of two."""
        source = peer.runtime.queue
        access: Any = cl.map_flags.READ
        with peer.runtime.waiting():
            mapped: Any
            mapped, _ = cl.enqueue_map_buffer(
                source, src, access, src_offset, (nbytes,), np.dtype(np.uint8), is_blocking=True
            )
        with self.runtime.waiting():
            cl.enqueue_copy(self.runtime.queue, dst, mapped, dst_offset=dst_offset, is_blocking=True)
        mapped.base.release(source)
        return Finished()
