"""Elements of PyTorch's tensors as vectors in host memory."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import torch


def to_host(x: torch.Tensor) -> np.ndarray:
    """Return a copy of the elements as a vector in host memory."""
    vector = x.detach().to("cpu", copy=True).contiguous().view(-1)
    if vector.dtype == torch.bfloat16:
        return vector.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return vector.numpy()


def store(x: torch.Tensor, values: np.ndarray) -> None:
    """Write a vector to a tensor."""
    if values.dtype == ml_dtypes.bfloat16:
        vector = torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    else:
        vector = torch.from_numpy(values)
    if x.is_complex() and not vector.is_complex():
        vector = torch.view_as_complex(vector.view(-1, 2))
    with torch.no_grad():
        x.copy_(vector.view(x.shape))


def store_parts(xs: Sequence[torch.Tensor], values: np.ndarray) -> None:
    """Write consecutive parts of a vector to tensors."""
    start = 0
    for x in xs:
        store(x, values[start : start + x.numel()])
        start += x.numel()
