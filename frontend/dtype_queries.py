"""Questions about dtypes and shapes, under the names of the Array API and PyTorch."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from polyhal.hal import dtypes, layout
from polyhal.hal.core import dispatch
from polyhal.hal.core.memory.imports import ImportedBuffer
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.hal.errors import message
from polyhal.hal.ops.returns import Returns, returns
from polyhal.hal.ops.top_level import top_level
from polyhal.interchange import shared
from polyhal.tensor import Tensor, as_tensor, make_tensor
from polyhal.tensor.foreign_arrays import imported, is_on_device

NUMBERS = (builtins.bool, builtins.int, builtins.float, builtins.complex)


def _dtype_of(value: Tensor | DType) -> DType:
    return value.dtype if isinstance(value, Tensor) else as_dtype(value)


@top_level
def promote_types(type1: Any, type2: Any) -> DType:
    """Return the dtype of results of an operation on two dtypes."""
    return dtypes.promote(as_dtype(type1), as_dtype(type2))


@top_level
def result_type(*values: Any) -> DType:
    """Return the dtype of results of an operation on tensors, dtypes and Python numbers; numbers only raise the kind.

    Raises ValueError without values.

    >>> polyhal.result_type(polyhal.int32, polyhal.float16)
    polyhal.float16
    """
    if not values:
        raise ValueError(message("result_type", "there are no values", expected="one at least"))
    kinds = [_dtype_of(v) for v in values if not isinstance(v, NUMBERS)]
    numbers = [type(v) for v in values if isinstance(v, NUMBERS)]
    result = kinds[0] if kinds else dtypes.bool_
    for kind in kinds[1:]:
        result = dtypes.promote(result, kind)
    for number in numbers:
        result = dtypes.promote_scalar(result, number)
    return result


@top_level
def can_cast(from_: DType, to: DType) -> builtins.bool:
    """Return whether promotion converts a dtype, or the dtype of a tensor, to another without loss, as in the Array API."""
    target = as_dtype(to)
    return dtypes.promote(_dtype_of(from_), target) is target


@top_level
def isdtype(dtype: DType, kind: DType | str | tuple[DType | str, ...]) -> builtins.bool:
    """Return whether a dtype is of a kind, or one of several: "bool", "signed integer", "integral", ..., or a dtype.

    Raises ValueError for a kind that the Array API does not name.

    >>> polyhal.isdtype(polyhal.float16, ("integral", "real floating"))
    True
    """
    return dtypes.is_kind(as_dtype(dtype), kind)


@top_level
@returns(Returns.EITHER)
def astype(x: Tensor, dtype: object, *, copy: builtins.bool = True, device: Device | str | None = None) -> Tensor:
    """Cast to another dtype, and move to another device if one is given. With `copy`, the default, always in new memory.

    >>> polyhal.astype(polyhal.tensor([1.7]), polyhal.int32).tolist()
    [1]
    """
    moved = x if device is None else x.to(Device(device))
    return moved.astype(dtype, copy=copy and moved is x)


@top_level
def is_floating_point(x: Tensor) -> builtins.bool:
    """Return whether the elements are floating point."""
    return x.dtype.is_floating_point


@top_level
def is_complex(x: Tensor) -> builtins.bool:
    """Return whether the elements are complex."""
    return x.dtype.is_complex


@top_level
def is_signed(x: Tensor) -> builtins.bool:
    """Return whether the elements can be negative."""
    return x.dtype.is_signed


@top_level
def is_nonzero(x: Tensor) -> builtins.bool:
    """Return whether the only element is not 0. Raises ValueError for other sizes."""
    return builtins.bool(x)


@top_level
def numel(x: Tensor) -> builtins.int:
    """Return the number of elements.

    >>> polyhal.numel(polyhal.ones(2, 3))
    6
    """
    return x.size


@top_level
def get_default_dtype() -> DType:
    """Return the dtype of tensors made of Python's floats: float32."""
    return dtypes.DEFAULT_FLOAT


@top_level
def set_default_dtype(dtype: DType) -> None:
    """Accept float32, the one default. Raises ValueError for others: write `dtype=` where tensors are made."""
    if as_dtype(dtype) is not dtypes.DEFAULT_FLOAT:
        problem = f"the default is {dtypes.DEFAULT_FLOAT.name}, not {as_dtype(dtype).name}"
        raise ValueError(message("set_default_dtype", problem, fix="give dtype=... where tensors are made"))


@top_level
def broadcast_shapes(*shapes: builtins.int | tuple[builtins.int, ...] | list[builtins.int]) -> tuple[builtins.int, ...]:
    """Return the common shape under NumPy's broadcasting rules; a number is a shape of one axis. Raises ValueError.

    >>> polyhal.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    return layout.broadcast_shapes(*((s,) if isinstance(s, builtins.int) else tuple(s) for s in shapes))


@top_level
@returns(Returns.EITHER)
def asarray(
    obj: Any,
    dtype: object = None,
    device: Device | str | None = None,
    copy: builtins.bool | None = None,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """Make a tensor of numbers, nested lists or arrays; a tensor that is as asked is returned itself, unless `copy`.

    With `copy=False` the tensor shares the memory of a NumPy array, as with `from_dlpack`. Arrays of other libraries in CUDA
    memory, with DLPack or `__cuda_array_interface__`, are shared unless `copy`. Raises ValueError where only a copy is possible
    with `copy=False`.

    >>> polyhal.asarray([[1, 2]]).shape
    (1, 2)
    """
    if copy:
        out = make_tensor(obj, dtype, device)
    else:
        may_share = copy is False and (isinstance(obj, np.ndarray) or is_on_device(obj))
        out = as_tensor(from_dlpack(obj, device=device, copy=False) if may_share else obj, dtype, device)
        if copy is False and out is not obj and not isinstance(out.real.buffer, ImportedBuffer):
            raise ValueError(message("asarray", "this takes a copy", fix="leave copy=False out"))
    return out.requires_grad_() if requires_grad else out


@top_level
def frombuffer(
    buffer: Any,
    *,
    dtype: object,
    count: builtins.int = -1,
    offset: builtins.int = 0,
    requires_grad: builtins.bool = False,
    device: Device | str | None = None,
) -> Tensor:
    """Make a vector of a copy of `count` elements (-1: all) from byte `offset` of an object with the buffer protocol.

    Raises ValueError where the buffer is too short or no whole number of elements.
    """
    values = np.frombuffer(buffer, as_dtype(dtype).numpy, count, offset)
    out = make_tensor(values, None, device)
    return out.requires_grad_() if requires_grad else out


@top_level
def from_numpy(array: np.ndarray) -> Tensor:
    """Make a tensor of a copy of a NumPy array, on the default device. Raises TypeError for anything else.

    PyTorch shares the memory instead. Not every device can, and devices run asynchronously: `from_dlpack` shares on request.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(message("from_numpy", f"got a {type(array).__name__}", expected="a NumPy array"))
    return make_tensor(array)


@top_level
def from_dlpack(x: Any, /, *, device: Device | str | None = None, copy: builtins.bool | None = None) -> Tensor:
    """Make a tensor of an array of another library, in its memory if possible, unless `copy`.

    Shape and dtype equal the array's. An array in CUDA memory becomes a tensor of the same device by default, and later work
    of the device comes after the work on the array so far. An array in host memory is shared by devices that work there: their
    work reads earlier writes of the host, and the array shows results after `device.synchronize()`. Read-only arrays are
    copied. Raises ValueError with `copy=False` where a copy is needed, and BufferError for memory that Polyhal cannot read.
    """
    if isinstance(x, Tensor):
        if copy is False:
            raise ValueError(message("from_dlpack", "this takes a copy", fix="leave copy=False out"))
        return make_tensor(x, None, device)
    if (found := imported(x, device, copy)) is not None:
        return found
    if copy is not True:
        found = shared(np.from_dlpack(x), dispatch.target_device(device))
        if found is not None:
            return found
    if copy is False:
        raise ValueError(message("from_dlpack", "this takes a copy", fix="leave copy=False out"))
    return make_tensor(np.from_dlpack(x), None, device)
