"""Collectives on tensors of devices that reach each other's memory, without a copy to the host.

Each rank has one device. All ranks agree on every call first, by a number on the host: another rank may have passed a tensor
on a device that cannot take part, or may be gone.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from polyhal.functions import contiguous
from polyhal.hal.collectives.collective import Collective, Kind, reduction_of
from polyhal.hal.collectives.communicator import Communicator, SupportsCommunicator
from polyhal.hal.collectives.process_group import ProcessGroup
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.tensor import Tensor

_SMALLEST = 1 << 18
"""Minimum bytes: less passes through the host in about the time that ranks need to agree."""
_NEVER, _AFTER_OPENING, _READY = range(3)


class _Opened(NamedTuple):
    """The communicator that a group opened last, with this rank's device; None if the devices do not reach each other."""

    device: Device
    communicator: Communicator | None


_opened: weakref.WeakKeyDictionary[ProcessGroup, _Opened] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def direct(
    kind: Kind,
    tensor: Tensor | None,
    counts: Sequence[int],
    itemsize: int,
    group: ProcessGroup,
    *,
    op: str = "sum",
    root: int = 0,
) -> Tensor | None:
    """Return this rank's result of a collective on vectors (N,), `counts` elements of each rank; None to use the host.

    All ranks make this call with the same arguments but `tensor`, and receive a result or None. `tensor` is the operand, of
    `itemsize` bytes per element, for a broadcast also on ranks that only receive; None if this rank's is in host memory. A mean
    of float16 or bfloat16 is rounded once, on the host. Raises ProcessGroupError if a rank is gone.
    """
    if group.size < 2 or sum(counts) * itemsize < _SMALLEST or (op == "mean" and itemsize < 4):
        return None
    communicator = _communicator(None if tensor is None else tensor.device, group)
    if communicator is None or tensor is None:
        return None
    reduction = reduction_of("sum" if op == "mean" else op, kind.value)
    collective = Collective(kind, tuple(counts), reduction, root)
    operands = (contiguous(tensor),) if communicator.sources(collective) else ()
    (result,) = dispatch.thread.executor.communicate(collective, communicator, tensor.dtype, operands)
    found: Tensor = result
    return found / group.size if op == "mean" else found


def _communicator(device: Device | None, group: ProcessGroup) -> Communicator | None:
    """Return the communicator among the ranks' devices; None on all ranks unless all take part."""
    with _lock:
        last = _opened.get(group)
    if last is not None and last.device is device:
        own = _NEVER if last.communicator is None else _READY
    else:
        own = _NEVER if device is None or not isinstance(device.backend, SupportsCommunicator) else _AFTER_OPENING
    state = np.array([own], np.int64)
    group.all_reduce(state, "min")
    if state[0] == _AFTER_OPENING:
        # Ranks that were ready open another one, too: the others may have changed their devices.
        assert device is not None
        assert isinstance(device.backend, SupportsCommunicator)
        last = _Opened(device, device.backend.open_communicator([device], group))
        with _lock:
            _opened[group] = last
    return None if state[0] == _NEVER or last is None else last.communicator
