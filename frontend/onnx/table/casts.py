"""Casts, also of elements that only the host can store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import polyhal as ph
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.onnx.element_types import device_dtype, numpy_dtype
from polyhal.onnx.evaluation_values import to_host
from polyhal.onnx.narrow_types import is_narrow, narrowed
from polyhal.onnx.registration import NodeFacts, Value, operator
from polyhal.tensor import Tensor


@operator("Cast", raw=True)
def cast(x: Value, *, to: int, saturate: int = 1, round_mode: str = "up", node: NodeFacts) -> Any:
    return _cast(x, numpy_dtype(to), bool(saturate), round_mode, node)


@operator("CastLike", raw=True)
def cast_like(x: Value, like: Value, *, saturate: int = 1, round_mode: str = "up", node: NodeFacts) -> Any:
    return _cast(x, like.dtype.numpy if isinstance(like, Tensor) else like.dtype, bool(saturate), round_mode, node)


def _cast(x: Value, dtype: np.dtype | None, saturate: bool, round_mode: str, node: NodeFacts) -> Any:
    if dtype is not None and is_narrow(dtype):
        return narrowed(to_host(x), dtype, saturate=saturate, round_mode=round_mode)
    target = None if dtype is None else device_dtype(dtype)
    if target is None or dtype is None:
        raise TypeError(f"tensors cannot store {dtype}")
    if isinstance(x, np.ndarray):
        if x.dtype == object or x.dtype.kind in "US":
            return x.astype(np.float64).astype(dtype) if target.is_floating_point else x.astype(dtype)
        return x.astype(dtype)
    stored: DType = node.device.stand_ins.get(target, target) if node.device is not None else target
    return x.to(stored)


@operator("BitCast")
def bit_cast(x: Tensor, *, to: int, node: NodeFacts) -> Any:
    dtype = numpy_dtype(to)
    target = None if dtype is None else device_dtype(dtype)
    if target is None:
        raise TypeError(f"tensors cannot store {dtype}")
    stored = target if node.device is None else node.device.stand_ins.get(target, target)
    if stored is not target or x.dtype.itemsize != target.itemsize:
        raise TypeError(f"{x.dtype} cannot be read as {target} on this device")
    return ph.host_call(_AS_BITS[target], x, results=[(x.shape, target)])[0]


def _reading(target: DType) -> Callable[[np.ndarray], np.ndarray]:
    def bit_cast(array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array).view(target.numpy).reshape(array.shape)

    return bit_cast


_AS_BITS = {dtype: _reading(dtype) for dtype in dtypes.ALL}
"""Functions that read the bits of an array as another dtype, on the host: no op reinterprets bits."""
