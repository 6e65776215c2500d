"""How one OpenCL device copies from another: which ways there are between two devices, and which is taken."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from polyhal.backends.common.launching.completion import Finished
from polyhal.backends.opencl.device_runtime import DeviceRuntime
from polyhal.backends.opencl.events import OpenCLCopy
from polyhal.backends.opencl.memory import STAGE_LIMIT, OpenCLMemory
from polyhal.backends.opencl.peers.cuda_copy import CudaCopy, copy_error
from polyhal.backends.opencl.peers.cuda_driver import CudaDevice, CudaError
from polyhal.backends.opencl.peers.exported_memory import ExportedMemory, open_exported_memory
from polyhal.hal.errors import OutOfMemoryError
from polyhal.hal.protocol import CompletionEvent

STAGING = 64 << 20
"""Bytes: at 400 GB/s this takes eight times as long as to wait for it."""

Way = Callable[["PeerCopies", cl.Buffer, int, cl.Buffer, int, int], CompletionEvent]
"""Copies from a peer: its buffer and offset, own buffer and offset, bytes."""


class _Staging(NamedTuple):
    """Exported memory for copies of memory that is not."""

    device: CudaDevice
    buffer: cl.Buffer
    address: int


class PeerCopies:
    """The copies of one device from its peers."""

    def __init__(self, runtime: DeviceRuntime, memory: OpenCLMemory) -> None:
        self.runtime = runtime
        self.memory = memory
        self._ways: weakref.WeakKeyDictionary[PeerCopies, Way | None] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self._exportable: ExportedMemory | None = None
        self._opened = False
        """Whether it was asked for."""
        self._opening = threading.Lock()
        self._staging: _Staging | None = None
        self._staging_lock = threading.Lock()

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
            return way(peer, src, src_offset, dst, dst_offset, nbytes)
        except cl.Error as error:
            action = f"copying {nbytes} bytes from {peer.runtime.info.name}"
            raise self.runtime.errors.translate(error, action) from error
        except CudaError as error:
            raise copy_error(error, nbytes, self.runtime.info.name) from error

    def _way(self, peer: PeerCopies) -> Way | None:
        try:
            return self._ways[peer]
        except KeyError:
            with self._lock:
                return self._ways.setdefault(peer, self._find_way(peer))

    def _find_way(self, peer: PeerCopies) -> Way | None:
        if peer.runtime.context == self.runtime.context:
            return self._within_context
        if self._reaches(peer):
            return self._through_cuda
        if self.runtime.features.cpu and peer.runtime.features.cpu:
            return self._from_mapped
        return None

    def exports(self) -> ExportedMemory | None:
        """Return the device's exported memory, in which large allocations are made from now on; None if it has none."""
        self.memory.exported = self.exportable()
        return self.memory.exported

    def exportable(self) -> ExportedMemory | None:
        """Return the device's exported memory, for some allocations only; None if it has none."""
        with self._opening:
            if not self._opened:
                self._opened = True
                self._exportable = open_exported_memory(self.runtime)
        return self._exportable

    def _reaches(self, peer: PeerCopies) -> bool:
        """Return whether CUDA copies between both devices, and let it."""
        own = self.exports()
        other = peer.exports() if own is not None else None
        try:
            return own is not None and other is not None and own.share_with(other)
        except CudaError:
            return False

    def _within_context(
        self, peer: PeerCopies, src: cl.Buffer, src_offset: int, dst: cl.Buffer, dst_offset: int, nbytes: int
    ) -> CompletionEvent:
        """Let the driver copy: its queues can wait for each other."""
        queue, source = self.runtime.queues.current(), peer.runtime.queues.current()
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
        return OpenCLCopy(self.runtime, event, lambda: self.memory.pending_reads(queue))

    def _from_mapped(
        self, peer: PeerCopies, src: cl.Buffer, src_offset: int, dst: cl.Buffer, dst_offset: int, nbytes: int
    ) -> CompletionEvent:
        """Write to this device from the peer's own memory, which the host sees: one copy where the host's way takes two."""
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

    def _through_cuda(
        self, peer: PeerCopies, src: cl.Buffer, src_offset: int, dst: cl.Buffer, dst_offset: int, nbytes: int
    ) -> CompletionEvent:
        """Let CUDA copy, over the link between two cards. The host waits for the work before, and the queues for the host."""
        own, other = self.memory.exported, peer.memory.exported
        assert own is not None
        assert other is not None
        queue, source = self.runtime.queues.current(), peer.runtime.queues.current()
        for q in {queue, source}:
            _ = q.native  # what it waits for comes first
            q.mark().wait()
        from_, to = peer._place(src, src_offset), self._place(dst, dst_offset)
        if from_ is None or to is None:
            self._through_staging(peer, src, src_offset, dst, dst_offset, nbytes)
            return Finished()
        copied = own.device.copy(from_, to, nbytes)
        own.note_copy(copied)
        other.note_copy(copied)
        copy = CudaCopy(copied, nbytes, self.runtime.info.name)
        queue.wait_for(copy)
        if source is not queue:
            source.wait_for(copy)
        return copy

    def _through_staging(
        self, peer: PeerCopies, src: cl.Buffer, src_offset: int, dst: cl.Buffer, dst_offset: int, nbytes: int
    ) -> None:
        """Copy memory that was allocated before there were peers, or in small pieces. Waits for the copy."""
        # In one order everywhere, so that two devices that copy from each other do not wait for each other.
        first, second = sorted((self, peer), key=id)
        with first._staging_lock, second._staging_lock:
            sent, arrived = peer._staging_memory(), self._staging_memory()
            if sent is None or arrived is None:
                self._through_host(peer, src, src_offset, dst, dst_offset, nbytes)
                return
            for start in range(0, nbytes, STAGING):
                size = min(STAGING, nbytes - start)
                from_ = peer._place(src, src_offset + start)
                if from_ is None:
                    from_ = sent.address
                    cl.enqueue_copy(
                        peer.runtime.queue, sent.buffer, src, byte_count=size, src_offset=src_offset + start
                    ).wait()
                to = self._place(dst, dst_offset + start)
                sent.device.copy(from_, arrived.address if to is None else to, size).wait()
                if to is None:
                    cl.enqueue_copy(
                        self.runtime.queue, dst, arrived.buffer, byte_count=size, dst_offset=dst_offset + start
                    ).wait()

    def _through_host(
        self, peer: PeerCopies, src: cl.Buffer, src_offset: int, dst: cl.Buffer, dst_offset: int, nbytes: int
    ) -> None:
        """Copy twice, and wait for both devices."""
        for start in range(0, nbytes, STAGE_LIMIT):
            staged = memoryview(bytearray(min(STAGE_LIMIT, nbytes - start)))
            peer.memory.read(src, src_offset + start, staged)
            self.memory.write(staged, dst, dst_offset + start)
        self.runtime.queues.current().mark().wait()

    def _place(self, buffer: cl.Buffer, offset: int) -> int | None:
        """Return where CUDA finds a byte of a buffer; None if the buffer was not exported."""
        assert self.memory.exported is not None
        address = self.memory.exported.address(buffer)
        return None if address is None else address + offset

    def _staging_memory(self) -> _Staging | None:
        """Return the staging memory of this device; None if it is full. Called with the lock."""
        exported = self.memory.exported
        assert exported is not None
        if self._staging is None:
            with contextlib.suppress(OutOfMemoryError):
                buffer = self.memory.allocate(STAGING)
                address = exported.address(buffer)
                if address is None:
                    self.memory.deallocate(buffer)
                else:
                    self._staging = _Staging(exported.device, buffer, address)
        return self._staging
