"""Values of a graph that may be on the host or on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal.errors import UnsupportedDTypeError, message
from polyhal.onnx.element_types import device_dtype
from polyhal.onnx.registration import NodeFacts
from polyhal.tensor import Tensor


def is_host(value: Any) -> bool:
    """Return whether a value is an array on the host, or absent."""
    return value is None or isinstance(value, np.ndarray | np.generic)


def to_host(value: Any) -> Any:
    """Return a value on the host, reading tensors from the device."""
    if isinstance(value, Tensor):
        return value.numpy()
    return [to_host(v) for v in value] if isinstance(value, list) else value


def as_tensor(value: Any, node: NodeFacts) -> Tensor:
    """Return a value as a tensor. Raises UnsupportedDTypeError for elements that only the host can store."""
    if isinstance(value, Tensor):
        return value
    if device_dtype(value.dtype) is None:
        problem = f"the node {node.name!r} ({node.op}) has an input of {value.dtype.name}, which tensors cannot store"
        raise UnsupportedDTypeError(message("onnx", problem, expected="a dtype of Polyhal", fix="cast it to float32"))
    return Tensor(value, device=node.device)
