"""Tensors of PyTorch as Polyhal's and the other way round, in the same memory."""

from __future__ import annotations

import torch

from polyhal.tensor import Tensor
from polyhal.torch import tensors
from polyhal.torch.device import NAME, current


def to_polyhal(x: torch.Tensor) -> Tensor:
    """A Polyhal tensor in the memory of one of PyTorch's on the device. Writes of either are seen by both.

    It is not on PyTorch's tape. Raises ValueError for a tensor of another device.
    """
    if x.device.type != NAME:
        raise ValueError(f'expected a tensor on {NAME} and got one on {x.device}; x.to("{NAME}") moves it')
    found = tensors.unwrap(x.detach())
    return found.detach()  # type: ignore[no-any-return]


def from_polyhal(x: Tensor) -> torch.Tensor:
    """A tensor of PyTorch in the memory of one of Polyhal's. Writes of either are seen by both.

    It is not on Polyhal's tape. Raises ValueError for a tensor of another device than PyTorch's.
    """
    if x.device is not current():
        problem = f'the tensor is on {x.device}, and torch.device("{NAME}") is {current()}'
        raise ValueError(f"{problem}; x.to({str(current())!r}) moves it")
    return tensors.wrap(x.detach())
