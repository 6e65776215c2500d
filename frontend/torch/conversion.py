"""Zero-copy conversion between PyTorch's and Polyhal's tensors."""

from __future__ import annotations

import torch

from polyhal.tensor import Tensor
from polyhal.torch import tensors
from polyhal.torch.device import NAME, current


def to_polyhal(x: torch.Tensor) -> Tensor:
    """Return a Polyhal tensor that shares the memory of a PyTorch tensor of the device: a write to one changes the other.

    The result is not on PyTorch's autograd graph. Raises ValueError for a tensor of another device.
    """
    if x.device.type != NAME:
        raise ValueError(f'expected a tensor on {NAME} and got one on {x.device}; x.to("{NAME}") moves it')
    found = tensors.unwrap(x.detach())
    return found.detach()  # type: ignore[no-any-return]


def from_polyhal(x: Tensor) -> torch.Tensor:
    """Return a PyTorch tensor that shares the memory of a Polyhal tensor: a write to one changes the other.

    The result is not on Polyhal's tape. Raises ValueError for a tensor of another device than PyTorch's.
    """
    if x.device is not current():
        problem = f'the tensor is on {x.device}, and torch.device("{NAME}") is {current()}'
        raise ValueError(f"{problem}; x.to({str(current())!r}) moves it")
    return tensors.wrap(x.detach())
