"""Windows: memory of each device that all devices of a group write to, in one process or in several of a machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl

from polyhal.backends.opencl.peers.cuda_driver import CudaError
from polyhal.hal.collectives.descriptors import all_agree, exchange_descriptors, on_one_machine

if TYPE_CHECKING:
    from polyhal.backends.opencl.peers.exported_memory import ExportedMemory
    from polyhal.backends.opencl.peers.peer_copies import PeerCopies
    from polyhal.hal.collectives.process_group import ProcessGroup

_DIGEST = 32
"""Bytes of a SHA-256."""
Windows = list[list[cl.Buffer]]
"""For each device of this process, the windows of all members, in order, as its context knows them."""


def open_windows(devices: Sequence[PeerCopies], processes: ProcessGroup | None, nbytes: int) -> Windows | None:
    """Make windows of `nbytes` for `devices`, filled with zeros, and let all members reach them.

    With `processes`, all of them make this call, with as many devices each. Returns None, on all of them, if there are none to
    be had. Raises ProcessGroupError.
    """
    cards = [d.runtime.info.id for d in devices] if processes is None else _cards_of_all(devices, processes)
    if len(set(cards)) < len(cards):
        return None  # kernels of two contexts of a card would wait for each other in turns
    exporters = [d.exportable() for d in devices]
    known = [e for e in exporters if e is not None]
    possible = len(known) == len(devices) and _reach_each_other(known)
    if processes is None:
        return _exchange_within(devices, known, nbytes) if possible else None
    if not (all_agree(processes, possible) and on_one_machine(processes)):
        return None
    own = _own_windows(devices, known, nbytes)
    if not all_agree(processes, own is not None):
        return None
    assert own is not None
    descriptors = [e.descriptor(window) for e, (window, _) in zip(known, own, strict=True)]
    try:
        others = exchange_descriptors(processes, descriptors)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    if others is None:
        return None
    windows: Windows = []
    complete = True
    try:
        for i in range(len(devices)):
            row: list[cl.Buffer] = []
            for rank, theirs in enumerate(others):
                if rank == processes.rank:
                    row += _within(known, own, i)
                else:
                    row += [known[i].import_memory(os.dup(d), own[0][1]) for d in theirs]
            windows.append(row)
    except (CudaError, cl.Error):
        complete = False
    finally:
        for descriptor in (d for theirs in others for d in theirs):
            os.close(descriptor)
    return windows if all_agree(processes, complete) else None


def _cards_of_all(devices: Sequence[PeerCopies], processes: ProcessGroup) -> list[str]:
    """What the devices of all processes are. All make this call. Raises ProcessGroupError."""
    own = b"".join(hashlib.sha256(d.runtime.info.id.encode()).digest() for d in devices)
    all_ = np.empty(len(own) * processes.size, np.uint8)
    processes.all_gather(np.frombuffer(own, np.uint8), all_, [len(own)] * processes.size)
    return [all_[i : i + _DIGEST].tobytes().hex() for i in range(0, len(all_), _DIGEST)]


def _reach_each_other(exporters: Sequence[ExportedMemory]) -> bool:
    try:
        return all(a.share_with(b) for i, a in enumerate(exporters) for b in exporters[:i])
    except CudaError:
        return False


def _own_windows(
    devices: Sequence[PeerCopies], exporters: Sequence[ExportedMemory], nbytes: int
) -> list[tuple[cl.Buffer, int]] | None:
    """A window of each device, and its size, which is the same for all."""
    windows = []
    for device, exporter in zip(devices, exporters, strict=True):
        window = exporter.allocate(nbytes)
        if window is None:
            return None
        cl.enqueue_fill_buffer(device.runtime.queue, window[0], np.zeros(1, np.uint32), 0, window[1]).wait()
        windows.append(window)
    return windows


def _exchange_within(
    devices: Sequence[PeerCopies], exporters: Sequence[ExportedMemory], nbytes: int
) -> Windows | None:
    own = _own_windows(devices, exporters, nbytes)
    try:
        return None if own is None else [_within(exporters, own, i) for i in range(len(devices))]
    except (CudaError, cl.Error):
        return None


def _within(exporters: Sequence[ExportedMemory], own: Sequence[tuple[cl.Buffer, int]], receiver: int) -> list[cl.Buffer]:
    """The windows of this process as one of its devices knows them. Raises CudaError and pyopencl.Error."""
    return [
        window if i == receiver else exporters[receiver].import_memory(exporters[i].descriptor(window), size)
        for i, (window, size) in enumerate(own)
    ]
