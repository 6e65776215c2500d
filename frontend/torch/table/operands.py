"""Helpers of several families: calls of Polyhal's functions by name, casts, and PyTorch's type promotion."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from polyhal.func import vjp
from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import message
from polyhal.hal.ops import FUNCTIONS as F
from polyhal.hal.ops import OPS
from polyhal.torch.registration import UnsupportedArgumentsError

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

__all__ = [
    "OPS",
    "F",
    "UnsupportedArgumentsError",
    "arange",
    "assign",
    "axes_of",
    "cast",
    "default_dtype",
    "is_tensor",
    "lifted",
    "mixed",
    "promoted",
    "pulled_back",
    "zeros",
]

_CATEGORY = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}


def is_tensor(x: Tensor | float) -> bool:
    """Return whether an operand is a tensor rather than a number."""
    return hasattr(x, "ref")


def cast(x: Any, dtype: DType | None) -> Any:
    """Cast a tensor; return the tensor itself if it has the dtype, or for None."""
    return x if dtype is None or x.dtype is dtype else F["cast"](x, dtype)


def promoted(a: Any, b: Any) -> tuple[Any, Any]:
    """Promote operands: as in PyTorch, a 0-d tensor does not widen a tensor with axes of its category."""
    if not (is_tensor(a) and is_tensor(b)) or a.dtype is b.dtype or bool(a.shape) == bool(b.shape):
        return a, b
    big, small = (a, b) if a.shape else (b, a)
    if _CATEGORY[big.dtype.kind] >= _CATEGORY[small.dtype.kind]:
        small = cast(small, big.dtype)
    return (big, small) if a.shape else (small, big)


def mixed(op: str, **operands: Tensor) -> RuntimeError:
    """Return the error for operands of different dtypes that PyTorch does not promote."""
    (first, x), (second, y) = operands.items()
    found = f"expected {first} and {second} to have the same dtype, but got {x.dtype.name} and {y.dtype.name}"
    return RuntimeError(message(op, found, fix=f"cast one of them with .to({first}.dtype) or .to({second}.dtype)"))


def axes_of(x: Tensor, dim: Any) -> Any:
    """Convert the axes of a reduction: PyTorch's empty list is Polyhal's None, all axes."""
    if dim is None or not x.shape or (isinstance(dim, (list, tuple)) and not dim):
        return None
    return tuple(dim) if isinstance(dim, (list, tuple)) else dim


def default_dtype(dtype: DType | None, *values: Any) -> DType:
    """Return the dtype of a new tensor: `dtype`, or else PyTorch's default for Python numbers."""
    if dtype is not None:
        return dtype
    if any(isinstance(v, float) for v in values) or not values:
        return dtypes.float32
    return dtypes.bool_ if all(isinstance(v, bool) for v in values) else dtypes.int64


def arange(length: int, device: Any) -> Any:
    """Return 0, 1, ... `length` - 1 as int64."""
    return F["arange"](0, length, 1, dtypes.int64, device=device)


def zeros(shape: tuple[int, ...], dtype: DType, device: Any) -> Any:
    """Return zeros."""
    return F["full"](shape, 0, dtype, device=device)


def lifted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function take a 0-d tensor as a vector of one element along axis 0; its results are then 0-d."""

    @wraps(function)
    def compute(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        if x.shape:
            return function(x, *args, **kwargs)
        results = function(F["reshape"](x, (1,)), *args, **kwargs)
        if isinstance(results, tuple):
            return tuple(F["reshape"](r, ()) for r in results)
        return F["reshape"](results, ())

    return compute


def pulled_back(function: Callable[[Any], Any], grad: Tensor, x: Tensor) -> Any:
    """Return the gradient of `x` by Polyhal's gradient rules, for the gradient `grad` of `function(x)`."""
    return vjp(function, x)[1](grad)[0]


def assign(target: Tensor, value: Tensor | int) -> None:
    """Replace the elements of a tensor in place by a number, or by a tensor of its shape, which is cast."""
    dispatch.thread.executor.overwrite(target, value)
