"""Copies between the device and PyTorch's other ones: on the GPU if both are the same, else through the host."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import dlpack

from polyhal.hal.core import dispatch
from polyhal.tensor import Tensor
from polyhal.tensor.foreign_arrays import imported
from polyhal.torch import tensors
from polyhal.torch.device import current

_CUDA = 2
"""DLPack's number for CUDA devices."""


def received(x: torch.Tensor) -> Any:
    """Return the elements of a tensor of another device: a copy, or the memory itself if it is the same GPU's."""
    if x.device.type == "cpu":
        return tensors.upload(x)
    if not _is_same(x.device) or x.dtype not in tensors.DTYPES:
        return tensors.upload(x.cpu())
    source = x.detach().resolve_neg()
    with torch.cuda.device(x.device):
        return imported(source, current())


def sent(x: Tensor, device: torch.device) -> torch.Tensor:
    """Return the elements for a tensor of another device: a copy on the CPU, or the memory itself if it is the same GPU's."""
    if not _is_same(device) or x.dtype.is_complex:
        return tensors.download(x)
    with torch.cuda.device(device):
        return dlpack.from_dlpack(x.detach())


def _is_same(device: torch.device) -> bool:
    """Return whether a device of PyTorch is the GPU of the device, and elements are computed rather than recorded."""
    foreign = current().foreign
    executor = dispatch.thread.executor
    executes = executor.replays_graphs and executor.recorder is None
    return device.type == "cuda" and foreign is not None and executes and foreign.space == (_CUDA, device.index)
