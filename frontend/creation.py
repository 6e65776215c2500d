"""Creating tensors from numbers and from other tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.device import Device
from polyhal.hal.ops import FUNCTIONS
from polyhal.tensor import Tensor

_full, _arange = FUNCTIONS["full"], FUNCTIONS["arange"]
Shape = int | tuple[int, ...] | list[int]


def tensor(data: Any, dtype: object = None, device: Device | str | None = None, requires_grad: bool = False) -> Tensor:
    """Make a tensor from a copy of `data`: numbers, nested lists, NumPy arrays or another tensor."""
    return Tensor(data, dtype=dtype, device=device, requires_grad=requires_grad)


def _filled(
    shape: Shape, value: bool | int | float, dtype: object, device: Device | str | None, requires_grad: bool
) -> Tensor:
    out: Tensor = _full(shape, value, dtypes.DEFAULT_FLOAT if dtype is None else dtype, device=Device(device))
    return out.requires_grad_() if requires_grad else out


def zeros(
    shape: Shape, dtype: object = None, device: Device | str | None = None, requires_grad: bool = False
) -> Tensor:
    """Make zeros of `shape`; float32 by default."""
    return _filled(shape, 0, dtype, device, requires_grad)


def ones(shape: Shape, dtype: object = None, device: Device | str | None = None, requires_grad: bool = False) -> Tensor:
    """Make ones of `shape`; float32 by default."""
    return _filled(shape, 1, dtype, device, requires_grad)


def empty(
    shape: Shape, dtype: object = None, device: Device | str | None = None, requires_grad: bool = False
) -> Tensor:
    """Make a tensor of `shape` whose elements are unspecified; here they are zero."""
    return _filled(shape, 0, dtype, device, requires_grad)


def zeros_like(x: Tensor, dtype: object = None) -> Tensor:
    """Make zeros with the shape, dtype and device of `x`."""
    return zeros(x.shape, x.dtype if dtype is None else dtype, x.device)


def ones_like(x: Tensor, dtype: object = None) -> Tensor:
    """Make ones with the shape, dtype and device of `x`."""
    return ones(x.shape, x.dtype if dtype is None else dtype, x.device)


def full_like(x: Tensor, value: bool | int | float, dtype: object = None) -> Tensor:
    """Make a tensor with the shape, dtype and device of `x`, filled with `value`."""
    return _filled(x.shape, value, x.dtype if dtype is None else dtype, x.device, False)


def linspace(start: float, stop: float, num: int, dtype: object = None, device: Device | str | None = None) -> Tensor:
    """Make `num` evenly spaced numbers from `start` to `stop`, both included."""
    return Tensor(np.linspace(start, stop, num), dtype=dtypes.DEFAULT_FLOAT if dtype is None else dtype, device=device)


def eye(rows: int, columns: int | None = None, dtype: object = None, device: Device | str | None = None) -> Tensor:
    """Make a matrix with ones on the diagonal and zeros elsewhere."""
    return Tensor(np.eye(rows, columns), dtype=dtypes.DEFAULT_FLOAT if dtype is None else dtype, device=device)
