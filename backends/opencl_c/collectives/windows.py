"""Windows: memory of each device to which all devices of a group write, in one process or in several on a machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal.system.communicators.descriptors import all_agree, exchange_descriptors, on_one_machine

if TYPE_CHECKING:
    from polyhal.backends.opencl_c.collectives.participant import Participant, Window, WindowMemory
    from polyhal.hal.collectives.process_group import ProcessGroup

_DIGEST = 32
"""Bytes of a SHA-256."""

Windows = list[list[Any]]
"""For each device of this process, the handles of all participants' windows on it, in order."""


def open_windows(devices: Sequence[Participant], processes: ProcessGroup | None, nbytes: int) -> Windows | None:
    """Allocate windows of `nbytes` for `devices`, filled with zeros, that all participants can access.

    With `processes`, every process must make this call, with an equal number of devices. Returns None in all of them if
    any window fails. Raises ProcessGroupError.
    """
    cards = [d.runtime.info.id for d in devices] if processes is None else _cards_of_all(devices, processes)
    if len(set(cards)) < len(cards):
        return None  # kernels in two contexts of one card are time-sliced: they would wait in turns
    memories = [d.window_memory() for d in devices]
    known = [e for e in memories if e is not None]
    possible = len(known) == len(devices) and _reach_each_other(devices, known)
    if processes is None:
        own = _own_windows(devices, known, nbytes) if possible else None
        return None if own is None else _imported(devices, known, own)
    if not (all_agree(processes, possible) and on_one_machine(processes)):
        return None
    own = _own_windows(devices, known, nbytes)
    others = None
    if all_agree(processes, own is not None) and own is not None:
        others = exchange_descriptors(processes, [window.descriptor for window in own])
    if own is None or others is None:
        _close([window.descriptor for window in own or ()])
        return None
    windows = _imported(devices, known, own, others, processes.rank)
    return windows if all_agree(processes, windows is not None) else None


def _cards_of_all(devices: Sequence[Participant], processes: ProcessGroup) -> list[str]:
    """Return the identities of the devices of all processes. All must call it. Raises ProcessGroupError."""
    own = b"".join(hashlib.sha256(d.runtime.info.id.encode()).digest() for d in devices)
    all_ = np.empty(len(own) * processes.size, np.uint8)
    processes.all_gather(np.frombuffer(own, np.uint8), all_, [len(own)] * processes.size)
    return [all_[i : i + _DIGEST].tobytes().hex() for i in range(0, len(all_), _DIGEST)]


def _reach_each_other(devices: Sequence[Participant], memories: Sequence[WindowMemory]) -> bool:
    try:
        return all(a.share_with(b) for i, a in enumerate(memories) for b in memories[:i])
    except devices[0].failures:
        return False


def _own_windows(devices: Sequence[Participant], memories: Sequence[WindowMemory], nbytes: int) -> list[Window] | None:
    """Return a window of each device, all of one size; None if an allocation fails."""
    windows = []
    try:
        for memory in memories:
            window = memory.window(nbytes)
            if window is None:
                break
            windows.append(window)
    except devices[0].failures:
        pass
    if len(windows) == len(devices):
        return windows
    _close([window.descriptor for window in windows])
    return None


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _imported(
    devices: Sequence[Participant],
    memories: Sequence[WindowMemory],
    own: Sequence[Window],
    others: Sequence[Sequence[int]] = ((),),
    rank: int = 0,
) -> Windows | None:
    """Return all participants' windows on each device of this process; None if one cannot be imported.

    `others` has the windows' descriptors of each process, none at this process's `rank`. All descriptors are closed.
    """
    failures: tuple[type[Exception], ...] = (*devices[0].failures, OSError)
    descriptors = [*others[:rank], [window.descriptor for window in own], *others[rank + 1 :]]
    try:
        return [
            [
                own[j].handle if (r, j) == (rank, i) else memory.import_memory(os.dup(descriptor), own[0].nbytes)
                for r, theirs in enumerate(descriptors)
                for j, descriptor in enumerate(theirs)
            ]
            for i, memory in enumerate(memories)
        ]
    except failures:
        return None
    finally:
        _close(d for theirs in descriptors for d in theirs)
