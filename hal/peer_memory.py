"""Optional protocols for memory that others than its device reach: other devices, and other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from polyhal.hal.protocol import CompletionEvent, ComputeBackend, Handle


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
