"""Values of PyTorch as values of Polyhal, and results of either as NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import torch

import polyhal
from polyhal import Device, Tensor
from polyhal.nn import functional

DTYPES: dict[torch.dtype, polyhal.DType] = {
    getattr(torch, name.rstrip("_")): getattr(polyhal, name)
    for name in (
        "bool_", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
        "float64", "complex64", "complex128",
    )
}  # fmt: skip
"""PyTorch's dtypes that exist here."""


class NoCounterpartError(Exception):
    """A value of PyTorch has no counterpart in Polyhal."""


def array(tensor: torch.Tensor) -> np.ndarray:
    """Return the elements of a tensor of PyTorch."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype is torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def to_polyhal(value: Any, device: Device, converted: dict[int, Tensor] | None = None) -> Any:
    """Convert a value, a tensor or a nest of them; a tensor that occurs twice stays one. Raises NoCounterpartError."""
    converted = {} if converted is None else converted
    if isinstance(value, torch.Tensor):
        if id(value) in converted:
            return converted[id(value)]
        if value.dtype not in DTYPES or value.layout is not torch.strided:
            raise NoCounterpartError(f"a tensor of {value.dtype}, {value.layout}")
        result = converted[id(value)] = polyhal.tensor(array(value), device=device, requires_grad=value.requires_grad)
        return result
    if isinstance(value, torch.dtype):
        if value not in DTYPES:
            raise NoCounterpartError(str(value))
        return DTYPES[value]
    if isinstance(value, torch.device):
        return device
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, (list, tuple)):
        return type(value)(to_polyhal(v, device, converted) for v in value)
    if isinstance(value, dict):
        return {k: to_polyhal(v, device, converted) for k, v in value.items()}
    name = getattr(value, "__name__", "")
    if name and getattr(torch.nn.functional, name, None) is value:
        return getattr(functional, name)
    if callable(value) or isinstance(value, torch.memory_format):
        raise NoCounterpartError(repr(value))
    return value


def leaves(value: Any) -> Iterator[Any]:
    """The values of a nest of lists, tuples and dictionaries, in order, without None."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for v in value:
            yield from leaves(v)
    elif value is not None:
        yield value


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor of either library."""
    return isinstance(value, (torch.Tensor, Tensor))
