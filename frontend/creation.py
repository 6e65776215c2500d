"""Creating tensors from numbers and from other tensors."""

from __future__ import annotations

import builtins
import cmath
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch.number_range import require_fit
from polyhal.hal.core.memory.host_memory import check_host_memory
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.keywords import MISSING
from polyhal.memory_format import MemoryFormat
from polyhal.shapes import Shape, lengths_of, shape_and_options
from polyhal.tensor import Tensor, make_tensor

_full, _arange, _empty = FUNCTIONS["full"], FUNCTIONS["arange"], FUNCTIONS["empty"]
Target = Device | str | None


def tensor(data: Any, dtype: object = None, device: Target = None, requires_grad: bool = False) -> Tensor:
    """Make a tensor from a copy of `data`: numbers, nested lists, NumPy arrays or another tensor.

    >>> x = polyhal.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> x.shape, (x @ x).tolist()
    ((2, 2), [[7.0, 10.0], [15.0, 22.0]])
    """
    out = make_tensor(data, dtype, device)
    return out.requires_grad_() if requires_grad else out


def scalar_tensor(value: Tensor, dtype: object = None, device: Target = None, requires_grad: bool = False) -> Tensor:
    """Make a tensor without axes; float32 by default, also of integers."""
    return tensor(value, dtype or dtypes.DEFAULT_FLOAT, device, requires_grad)


def _filled(shape: tuple[int, ...], value: int, dtype: object, device: Target, requires_grad: bool = False) -> Tensor:
    kind = dtypes.DEFAULT_FLOAT if dtype is None else as_dtype(dtype)
    out: Tensor = _full(shape, value, kind, device=dispatch.target_device(device))
    return out.requires_grad_() if requires_grad else out


def _uninitialized(shape: tuple[int, ...], dtype: object, device: Target, requires_grad: bool = False) -> Tensor:
    kind = dtypes.DEFAULT_FLOAT if dtype is None else as_dtype(dtype)
    out: Tensor = _empty(shape, kind, device=dispatch.target_device(device))
    return out.requires_grad_() if requires_grad else out


def _filled_from(
    function: str, value: int, arguments: tuple[Any, ...], size: Any, dtype: object, device: Target, requires_grad: bool
) -> Tensor:
    shape, options = shape_and_options(function, arguments, size, 3)
    given: list[Any] = [*options, *(dtype, device, requires_grad)[len(options) :]]
    return _filled(shape, value, *given)


def _given(shape: Any, more: tuple[Any, ...]) -> tuple[Any, ...]:
    return () if shape is MISSING else (shape, *more)


def zeros(
    shape: Any = MISSING,
    *more: Any,
    size: Any = None,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make zeros: `zeros(2, 3)` or `zeros((2, 3))`; float32 by default.

    After a shape given as a tuple, dtype, device and requires_grad may follow by position.
    """
    return _filled_from("zeros", 0, _given(shape, more), size, dtype, device, requires_grad)


def ones(
    shape: Any = MISSING,
    *more: Any,
    size: Any = None,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make ones: `ones(2, 3)` or `ones((2, 3))`; float32 by default.

    After a shape given as a tuple, dtype, device and requires_grad may follow by position.
    """
    return _filled_from("ones", 1, _given(shape, more), size, dtype, device, requires_grad)


def empty(
    shape: Any = MISSING,
    *more: Any,
    size: Any = None,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make a tensor of uninitialized elements, NaN in debug mode: `empty(2, 3)` or `empty((2, 3))`."""
    lengths, options = shape_and_options("empty", _given(shape, more), size, 3)
    given: list[Any] = [*options, *(dtype, device, requires_grad)[len(options) :]]
    return _uninitialized(lengths, *given)


def full(
    shape: Any = None,
    fill_value: Any = None,
    dtype: object = None,
    device: Any = None,
    requires_grad: bool = False,
    *,
    size: Shape | None = None,
    value: complex | None = None,
) -> Tensor:
    """Make a tensor of `shape` filled with a number, whose kind determines the default dtype: bool, int64 or float32.

    >>> polyhal.full((2, 3), 7).tolist()
    [[7, 7, 7], [7, 7, 7]]
    """
    number = _number("full", value if fill_value is None else fill_value)
    lengths = lengths_of("full", *(() if shape is None else (shape,)), size=size)
    kind = _dtype_of(number) if dtype is None else as_dtype(dtype)
    return _filled(lengths, number, kind, device, requires_grad)


def _number(function: str, value: Any) -> Any:
    """Return a Python number from a number or a tensor of one element. Raises TypeError."""
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        value = value.item()
    if not isinstance(value, (builtins.bool, builtins.int, builtins.float, builtins.complex)):
        raise TypeError(message(function, f"cannot fill with {value!r}", expected="a number"))
    return value


def _dtype_of(value: complex | float) -> DType:
    if isinstance(value, builtins.bool):
        return dtypes.bool_
    if isinstance(value, builtins.complex):
        return dtypes.complex64
    return dtypes.DEFAULT_INT if isinstance(value, builtins.int) else dtypes.DEFAULT_FLOAT


# --- like another tensor --------------------------------------------------------------------------------------------


def zeros_like(
    x: Tensor,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
    *,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """Make zeros with the shape of `x`, and its dtype and device by default."""
    return full_like(x, 0, dtype, device, requires_grad)


def ones_like(
    x: Tensor,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
    *,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """Make ones with the shape of `x`, and its dtype and device by default."""
    return full_like(x, 1, dtype, device, requires_grad)


def empty_like(
    x: Tensor,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
    *,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """Make a tensor of uninitialized elements with the shape of `x`, and its dtype and device by default."""
    target = x.device if device is None else device
    return _uninitialized(x.shape, x.dtype if dtype is None else dtype, target, requires_grad)


def full_like(
    x: Tensor,
    fill_value: complex,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
    *,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """Make a tensor filled with a number, with the shape of `x`, and its dtype and device by default."""
    number = _number("full_like", fill_value)
    target = x.device if device is None else device
    return _filled(x.shape, number, x.dtype if dtype is None else dtype, target, requires_grad)


# --- sequences of numbers -------------------------------------------------------------------------------------------


def arange(
    start: Tensor | float | None = None,
    stop: Any = None,
    step: float = 1,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
    *,
    end: float | None = None,
) -> Tensor:
    """Make numbers from `start` up to, not including, `stop`: `arange(stop)`, `arange(start, stop, step)`.

    PyTorch's keyword `end` means `stop`. int64 if all are integers, else float32. An integer dtype rounds `start` and `step`
    towards zero, int64 `stop` too. Raises ValueError for a step of 0, ShapeError for a bound that is not finite, and TypeError
    without `stop`.

    >>> polyhal.arange(2, 10, 3).tolist()
    [2, 5, 8]
    """
    stop = end if stop is None else stop
    if stop is None:
        start, stop = 0, start
    if stop is None:
        raise TypeError(message("arange", "nothing says where the range ends", expected="stop"))
    bounds = [_number("arange", v) for v in (0 if start is None else start, stop, step)]
    if not all(map(cmath.isfinite, bounds)):
        raise ShapeError(message("arange", f"bounds and step are {bounds}", expected="finite numbers"))
    out: Tensor = _arange(*bounds, dtype, device=dispatch.target_device(device))
    return out.requires_grad_() if requires_grad else out


def linspace(
    start: Any,
    stop: Any = None,
    num: int | None = None,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
    *,
    end: Tensor | float | None = None,
    steps: int | None = None,
    endpoint: bool = True,
) -> Tensor:
    """Make `num` evenly spaced numbers from `start` to `stop`, both included. Integer dtypes round towards zero.

    Without `endpoint`, the first `num` of `num + 1` such numbers. PyTorch's keywords `end` and `steps` mean `stop` and `num`.
    Bounds may be tensors of one element.

    >>> polyhal.linspace(0, 1, 5).tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    first, last, count = _range("linspace", start, stop, num, end, steps)
    for bound in (first, last) if dtype is not None else ():
        require_fit("linspace", bound, as_dtype(dtype))
    check_host_memory("linspace", 4 * 8 * count)
    spaced = _spaced(first, last, count + (not endpoint), dtype)[:count]
    return _computed(spaced, dtype, device, requires_grad)


def logspace(
    start: Tensor | float,
    stop: Any = None,
    num: int | None = None,
    base: float = 10.0,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
    *,
    end: Tensor | float | None = None,
    steps: int | None = None,
) -> Tensor:
    """Make `num` numbers from `base ** start` to `base ** stop`, evenly spaced on a logarithmic scale.

    PyTorch's keywords `end` and `steps` mean `stop` and `num`. An integer dtype rounds bounds and results
    towards zero.
    """
    first, last, count = _range("logspace", start, stop, num, end, steps)
    check_host_memory("logspace", 4 * 8 * count)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        values = np.power(float(base), _spaced(first, last, count, dtype))
    return _computed(values, dtype, device, requires_grad)


def _range(
    function: str, start: Tensor | float | None, stop: Any, num: Any, end: Tensor | float | None, steps: int | None
) -> tuple[Any, Any, int]:
    """Return both bounds and the count, from either spelling of the keywords."""
    stop, num = end if stop is None else stop, steps if num is None else num
    if stop is None or num is None:
        raise TypeError(message(function, "too few arguments", expected="start, stop and num"))
    if num < 0:
        raise ValueError(message(function, f"num is {num}", expected="0 or more"))
    return _number(function, start), _number(function, stop), num


def _spaced(start: float, stop: float, count: int, dtype: object) -> np.ndarray:
    """Evenly spaced float64 numbers, counted from the nearer end, so that both ends are exact and the middle symmetric.

    An integer dtype truncates the bounds first.
    """
    if dtype is not None and as_dtype(dtype).is_integral:
        start, stop = int(start), int(stop)
    if count == 1:
        return np.array([start], np.result_type(start, np.float64))
    i = np.arange(count)
    step = (stop - start) / max(count - 1, 1)
    spaced: np.ndarray = np.where(i < count // 2, start + step * i, stop - step * (count - 1 - i))
    return spaced


def _computed(values: np.ndarray, dtype: object, device: Target, requires_grad: bool) -> Tensor:
    default = dtypes.complex64 if np.iscomplexobj(values) else dtypes.DEFAULT_FLOAT
    return tensor(values, default if dtype is None else as_dtype(dtype), device, requires_grad)


def eye(
    rows: int,
    columns: int | None = None,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
    *,
    k: int = 0,
) -> Tensor:
    """Make a matrix with ones on diagonal number `k` and zeros elsewhere; float32 by default.

    >>> polyhal.eye(2, 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    kind, width = dtypes.DEFAULT_FLOAT if dtype is None else as_dtype(dtype), rows if columns is None else columns
    check_host_memory("eye", rows * width * kind.itemsize)
    return _computed(np.eye(rows, width, k, dtype=kind.numpy), dtype, device, requires_grad)


def tril_indices(row: int, col: int, offset: int = 0, dtype: object = dtypes.int64, device: Target = None) -> Tensor:
    """Make the row and column numbers of the lower triangle up to diagonal `offset`: shape (2, n), int64 by default."""
    check_host_memory("tril_indices", row * col)  # NumPy makes a matrix of bool
    return _computed(np.array(np.tril_indices(row, offset, col)), dtype, device, False)


def triu_indices(row: int, col: int, offset: int = 0, dtype: object = dtypes.int64, device: Target = None) -> Tensor:
    """Make the row and column numbers of the upper triangle from diagonal `offset`: shape (2, n), int64 by default."""
    check_host_memory("triu_indices", row * col)
    return _computed(np.array(np.triu_indices(row, offset, col)), dtype, device, False)


# --- PyTorch's methods ----------------------------------------------------------------------------------------------


def new_zeros(
    x: Tensor, *shape: Any, size: Any = None, dtype: object = None, device: Target = None, requires_grad: bool = False
) -> Tensor:
    """Make zeros of another shape with the dtype and device of `x` by default."""
    return new_full(x, lengths_of("new_zeros", *shape, size=size), 0, dtype, device, requires_grad)


def new_ones(
    x: Tensor, *shape: Any, size: Any = None, dtype: object = None, device: Target = None, requires_grad: bool = False
) -> Tensor:
    """Make ones of another shape with the dtype and device of `x` by default."""
    return new_full(x, lengths_of("new_ones", *shape, size=size), 1, dtype, device, requires_grad)


def new_empty(
    x: Tensor, *shape: Any, size: Any = None, dtype: object = None, device: Target = None, requires_grad: bool = False
) -> Tensor:
    """Make a tensor of uninitialized elements in another shape, with the dtype and device of `x` by default."""
    kind, target = x.dtype if dtype is None else dtype, x.device if device is None else device
    return _uninitialized(lengths_of("new_empty", *shape, size=size), kind, target, requires_grad)


def new_full(
    x: Tensor,
    shape: Shape,
    fill_value: complex,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make a tensor of `shape` filled with a number, with the dtype and device of `x` by default."""
    number = _number("new_full", fill_value)
    kind, target = x.dtype if dtype is None else dtype, x.device if device is None else device
    return _filled(lengths_of("new_full", shape), number, kind, target, requires_grad)


def new_tensor(
    x: Tensor, data: Any, dtype: object = None, device: Target = None, requires_grad: bool = False
) -> Tensor:
    """Make a tensor from a copy of `data`, with the dtype and device of `x` by default."""
    kind, target = x.dtype if dtype is None else dtype, x.device if device is None else device
    return tensor(data, kind, target, requires_grad)
