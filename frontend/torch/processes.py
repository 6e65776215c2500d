"""Tensors that queues, pipes and workers of a `DataLoader` send to other processes.

A process cannot map memory of another's device. So the bytes travel through the pipe, and the receiver has a copy on its own
device.
"""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

import numpy as np

from polyhal.hal.dtypes import uint8
from polyhal.tensor import wrap as polyhal_tensor
from polyhal.torch.device import current
from polyhal.torch.storages import Storage, of_bytes

_Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def install() -> None:
    """Let PyTorch's and Python's multiprocessing send storages of the device."""
    ForkingPickler.register(Storage, _sent)


def _sent(storage: Storage) -> _Reduced:
    """Reduce a storage to its bytes.

    A queue pickles in a thread, where an error would be printed while the receiver waits: the receiver raises it.
    """
    try:
        return _received, (storage.as_bytes().numpy().tobytes(),)
    except Exception as error:
        return _refused, (f"a process did not send a tensor: {error}",)


def _received(data: bytes) -> Storage:
    device = current()
    return of_bytes(polyhal_tensor(device, *device.upload(np.frombuffer(data, np.uint8), uint8)))


def _refused(text: str) -> NoReturn:
    raise RuntimeError(text)
