"""Windows: memory of each device to which all devices of a group write, in one process or in several on a machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyopencl as cl

from polyhal.backends.common.cuda_driver import CudaError
from polyhal.hal.system.communicators.descriptors import all_agree, exchange_descriptors, on_one_machine

if TYPE_CHECKING:
    from polyhal.backends.opencl.peers.exported_memory import ExportedMemory
    from polyhal.backends.opencl.peers.peer_copies import PeerCopies
    from polyhal.hal.collectives.process_group import ProcessGroup

_DIGEST = 32
"""Bytes of a SHA-256."""

Windows = list[list[cl.Buffer]]
"""For each device of this process, the buffers of all participants' windows in its context, in order."""


class _Window(NamedTuple):
    """Window of a device of this process."""

    buffer: cl.Buffer
    nbytes: int
    descriptor: int
    """File descriptor for importers."""


def open_windows(devices: Sequence[PeerCopies], processes: ProcessGroup | None, nbytes: int) -> Windows | None:
    """Allocate windows of `nbytes` for `devices`, filled with zeros, that all participants can access.

    With `processes`, every process must make this call, with an equal number of devices. Returns None in all of them if
    any window fails. Raises ProcessGroupError.
    """
    cards = [d.runtime.info.id for d in devices] if processes is None else _cards_of_all(devices, processes)
    if len(set(cards)) < len(cards):
        return None  # kernels in two contexts of one card are time-sliced: they would wait in turns
    exporters = [d.exportable() for d in devices]
    known = [e for e in exporters if e is not None]
    possible = len(known) == len(devices) and _reach_each_other(known)
    if processes is None:
        own = _own_windows(devices, known, nbytes) if possible else None
        return None if own is None else _imported(known, own)
    if not (all_agree(processes, possible) and on_one_machine(processes)):
        return None
    own = _own_windows(devices, known, nbytes)
    others = None
    if all_agree(processes, own is not None) and own is not None:
        others = exchange_descriptors(processes, [window.descriptor for window in own])
    if own is None or others is None:
        _close([window.descriptor for window in own or ()])
        return None
    windows = _imported(known, own, others, processes.rank)
    return windows if all_agree(processes, windows is not None) else None


def _cards_of_all(devices: Sequence[PeerCopies], processes: ProcessGroup) -> list[str]:
    """Return the identities of the devices of all processes. All must call it. Raises ProcessGroupError."""
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
) -> list[_Window] | None:
    """Return a window of each device, all of one size; None if an allocation fails."""
    windows = []
    try:
        for device, exporter in zip(devices, exporters, strict=True):
            allocation = exporter.allocate(nbytes)
            if allocation is None:
                break
            cl.enqueue_fill_buffer(device.runtime.queue, allocation[0], np.zeros(1, np.uint32), 0, allocation[1]).wait()
            windows.append(_Window(*allocation, exporter.descriptor(allocation[0])))
    except (CudaError, cl.Error):
        pass
    if len(windows) == len(devices):
        return windows
    _close([window.descriptor for window in windows])
    return None


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _imported(
    exporters: Sequence[ExportedMemory], own: Sequence[_Window], others: Sequence[Sequence[int]] = ((),), rank: int = 0
) -> Windows | None:
    """Return all participants' windows in the context of each device of this process; None if one cannot be imported.

    `others` has the windows' descriptors of each process, none at this process's `rank`. All descriptors are closed.
    """
    descriptors = [*others[:rank], [window.descriptor for window in own], *others[rank + 1 :]]
    try:
        return [
            [
                own[j].buffer if (r, j) == (rank, i) else exporter.import_memory(os.dup(descriptor), own[0].nbytes)
                for r, theirs in enumerate(descriptors)
                for j, descriptor in enumerate(theirs)
            ]
            for i, exporter in enumerate(exporters)
        ]
    except (cl.Error, OSError):
        return None
    finally:
        _close(d for theirs in descriptors for d in theirs)
