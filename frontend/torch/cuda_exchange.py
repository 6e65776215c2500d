"""Copies between the device and PyTorch's other ones: on the GPU if both are the same, else through the host."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import dlpack

from polyhal.hal.core import dispatch
from polyhal.hal.peer_memory import SupportsForeignMemory
from polyhal.tensor import Tensor
from polyhal.tensor.foreign_arrays import imported
from polyhal.torch import tensors
from polyhal.torch.device import current

_CUDA = 2
"""DLPack's number for CUDA devices."""
_DEFAULT_STREAM = 1


def receive(x: torch.Tensor, source: torch.Tensor) -> None:
    """Copy the elements of a tensor of another device to `x`. Later work of PyTorch on `source` comes after the copy."""
    driver = _shared_driver(source.device)
    if driver is None or source.dtype not in tensors.DTYPES:
        tensors.write(x, tensors.upload(source if source.device.type == "cpu" else source.cpu()))
        return
    with torch.cuda.device(source.device):
        value: Any = imported(source.detach().resolve_neg(), current())
        tensors.write(x, value)
        driver.let_stream_wait(_stream_of(source.device))


def send(source: Tensor, x: torch.Tensor) -> None:
    """Copy the elements of a Polyhal tensor to `x`, of another device. Later work on `source` comes after the copy."""
    driver = _shared_driver(x.device)
    if driver is None or source.dtype.is_complex:
        x.copy_(tensors.download(source))
        return
    with torch.cuda.device(x.device):
        x.copy_(dlpack.from_dlpack(source.detach()))
        driver.wait_for_stream(_stream_of(x.device))


def _shared_driver(device: torch.device) -> SupportsForeignMemory | None:
    """Return the driver if a device of PyTorch is the GPU of the device; None otherwise, and while elements are recorded."""
    if device.type != "cuda":
        return None
    foreign, executor = current().foreign, dispatch.thread.executor
    executes = executor.replays_graphs and executor.recorder is None
    return foreign.driver if foreign is not None and executes and foreign.space == (_CUDA, device.index) else None


def _stream_of(device: torch.device) -> int:
    """Return PyTorch's current stream as DLPack numbers streams."""
    return int(torch.cuda.current_stream(device).cuda_stream) or _DEFAULT_STREAM
