"""Copies between two devices that bypass the host's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from polyhal.hal.core.memory.pool import bucket
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.peer_memory import SupportsPeerCopy
from polyhal.hal.protocol import CompletionEvent, Feature

if TYPE_CHECKING:
    from polyhal.hal.device import Device


def has_peer_copy(source: Device, target: Device) -> bool:
    """Return whether `target` can copy from the memory of `source`."""
    return Feature.PEER_COPY in target.features and _receiver(target).can_copy_from(source.backend)


def copy_from_peer(source: Device, ref: Ref, target: Device, out: Ref) -> CompletionEvent | None:
    """Enqueue a copy of the elements of `ref` to `out`, which is contiguous, between devices with peer copies.

    The copy is enqueued on the thread's streams of both devices. Returns its event; None if there are no elements.
    """
    if not ref.size:
        return None
    if not ref.is_contiguous:
        dense = contiguous(ref.dtype, ref.shape)
        buffer = source.pool.take(bucket(dense.nbytes))
        source.backend.copy(ref, Ref(buffer.handle, dense, 0))
        # The buffer is free after this call; work that reuses it is enqueued after the copy.
        ref = Ref(buffer.handle, dense, 0)
    size = ref.dtype.itemsize
    return _receiver(target).copy_from_peer(
        source.backend, ref.handle, ref.offset * size, out.handle, out.offset * size, ref.size * size
    )


def _receiver(device: Device) -> SupportsPeerCopy:
    """Return the backend as a receiver of peer copies. A cast, because checking the members takes microseconds per copy."""
    return cast(SupportsPeerCopy, device.backend)
