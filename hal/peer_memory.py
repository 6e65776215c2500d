"""Optional protocols for memory that others than its device reach: other devices, and other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from polyhal.hal.protocol import CompletionEvent, ComputeBackend, Event, Handle


@runtime_checkable
class SupportsPeerCopy(Protocol):
    """Copies from the memory of another device that do not pass through the host's.

    `Tensor.to` calls both members, on the device that receives. The first question about a peer may prepare the copies, so
    that memory which is allocated later can be copied faster.
    """

    def can_copy_from(self, peer: ComputeBackend) -> bool:
        """Return whether `copy_from_peer` accepts `peer`; always the same answer for the same two. True for the backend itself.

        `peer` may be of any backend. Raises nothing.
        """

    def copy_from_peer(
        self, peer: ComputeBackend, src: Handle, src_offset: int, dst: Handle, dst_offset: int, nbytes: int
    ) -> CompletionEvent:
        """Start to copy `nbytes` > 0 bytes of the peer's `src` to this device's `dst`. Offsets count bytes.

        The copy is a part of two streams, those that the calling thread has selected on this device and on the peer: it comes
        after everything enqueued on both so far, and everything enqueued on either later comes after it. So later work may
        read `dst`, write `src` or release both without waiting for the event. Work on other streams of either device is
        ordered by the caller: `wait_for` of both devices takes the event. The copy and all work before it are submitted, so
        that the event becomes complete without another call.

        If the devices cannot wait for each other, this call may block until the work before the copy is done, and the next
        that enqueues on one of the two streams until the copy is. The ranges do not overlap if `peer` is the backend itself.
        """


class DeviceAddress(NamedTuple):
    """The location of memory, in the terms of DLPack."""

    kind: int
    """DLDeviceType: 1 for the host, 2 for CUDA."""
    number: int
    """Of the device, as the library counts them."""
    address: int


@runtime_checkable
class SupportsDeviceAddress(Protocol):
    """Memory with addresses that other libraries of the process understand. `polyhal.to_dlpack` calls both members.

    It is no `Feature`: nothing else depends on it.
    """

    def device_address(self, handle: Handle) -> DeviceAddress | None:
        """Return the address of an allocation; None if it has no such address."""

    def allocate_addressable(self, nbytes: int) -> Handle | None:
        """Allocate memory that has an address, to be released by `deallocate`; None if there is none to be had."""


@runtime_checkable
class SupportsMemoryImport(Protocol):
    """Host memory that others have allocated, used without a copy: for devices that compute in the host's memory.

    `polyhal.from_dlpack` and PyTorch's compiled programs call it for memory that they have not met before.
    """

    def import_memory(self, address: int, nbytes: int) -> Handle | None:
        """Return a handle for `nbytes` > 0 of writable host memory at `address`; None if work cannot use it without a copy.

        The address may have any alignment, and every member takes the handle. Host writes are visible to work enqueued
        after them; writes of work are visible to the host after `synchronize`. `deallocate` releases the handle and not the
        memory. The caller keeps the memory until then, and until all work on it is done. Raises nothing.
        """


@runtime_checkable
class SupportsForeignMemory(Protocol):
    """Device memory and streams of other libraries of the process, used without a copy and without waiting on the host.

    `polyhal.from_dlpack`, `polyhal.asarray` and the exports of tensors call the members; the backend has those of
    `SupportsDeviceAddress`, too. It is not a `Feature`: nothing else depends on it.

    Streams are numbers, as in DLPack: for CUDA 1 is the default stream, 2 the default stream of the calling thread, and any
    other number the driver's handle.
    """

    def memory_space(self) -> tuple[int, int]:
        """Return the kind and the number of the device, the first two fields of each `DeviceAddress`."""

    def number_of_device(self, address: int) -> int | None:
        """Return the number of the device, of the same kind, that has the memory at an address; None for other addresses."""

    def import_device_memory(self, address: int, nbytes: int) -> Handle:
        """Return a handle for `nbytes` > 0 of this device's memory at `address`, a multiple of 128.

        Every member takes the handle. `deallocate` releases the handle and not the memory. The caller keeps the memory until
        then, and until all work on it is done.
        """

    def stream_number(self) -> int:
        """Return the stream of the calling thread."""

    def wait_for_stream(self, number: int) -> None:
        """Make later work on the thread's stream wait for everything enqueued so far on another library's. Does not block."""

    def let_stream_wait(self, number: int) -> None:
        """Make later work on another library's stream wait for everything enqueued so far on the thread's. Does not block."""

    def mark_everything(self) -> Event:
        """Return an event after everything enqueued so far on all streams of the device, and on the default stream."""
