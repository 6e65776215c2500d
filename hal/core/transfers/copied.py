"""Immediate copies of tensors to another device: a peer copy, a chunked copy through the host, or a download and upload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.hal.core.memory.buffer import Buffer
from polyhal.hal.core.memory.peer_copies import copy_from_peer, has_peer_copy
from polyhal.hal.core.transfers import relay
from polyhal.hal.layout import Ref, contiguous

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_CHUNKS = 4
"""Minimum number of chunks for which overlapping reads and writes is faster."""


def copied(source: Device, ref: Ref, target: Device, non_blocking: bool = False) -> tuple[Buffer, Ref]:
    """Copy the elements of `ref` to new memory of `target`. Returns the buffer and a reference to it.

    `non_blocking` is as for `Device.upload`. Raises OutOfMemoryError, and UnsupportedDTypeError.
    """
    peers = has_peer_copy(source, target)
    if ref.dtype in target.stand_ins or (
        not peers and (not ref.is_contiguous or ref.spec.nbytes < _CHUNKS * relay.CHUNK)
    ):
        return target.upload(source.download(ref), ref.dtype, non_blocking)
    buffer, out = target.reserve(contiguous(ref.dtype, ref.shape))
    if peers:
        copy_from_peer(source, ref, target, out)
    else:
        through_host = relay.HostRelay(source, target, ref.spec.nbytes)
        through_host.send(ref)
        through_host.receive(out)
    return buffer, out
