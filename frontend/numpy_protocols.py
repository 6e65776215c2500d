"""Tensors as arguments of NumPy's functions.

NumPy's universal functions, and its operators with an array on the left, call Polyhal's op of the same name on the tensor's
device: `np.sin(x)` is `polyhal.sin(x)`, with a gradient. All other functions of NumPy run on the host, on copies of the
elements, and return arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal.core import dispatch
from polyhal.hal.errors import message
from polyhal.hal.ops import NUMPY

if TYPE_CHECKING:
    from polyhal.tensor import Tensor


class NumPyProtocols:
    """The members of tensors that NumPy calls."""

    __slots__ = ()

    def __array__(self: Any, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            return _without_copy(self, dtype)
        out: np.ndarray = self.numpy()
        return out if dtype is None else out.astype(dtype, copy=False)

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Apply the op of the same name, or else the universal function on the host."""
        op = None if options or method != "__call__" else _op_of(function)
        if op is not None:
            return op(*inputs)
        for out in options.get("out", ()):
            if isinstance(out, NumPyProtocols):
                fix = "assign the result: x[...] = numpy_function(...)"
                raise TypeError(message(function.__name__, "NumPy cannot write to a tensor", fix=fix))
        return getattr(function, method)(*on_host(inputs), **on_host(options))

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        """Call a function of NumPy on the host."""
        if function in _OF_SHAPES and len(args) == 1 and not kwargs and args[0] is self:
            return _OF_SHAPES[function](self)
        return function(*on_host(args), **on_host(kwargs))

    def to_numpy(self: Any) -> np.ndarray:
        """Copy the elements to a NumPy array, as `numpy` does; the name by which Matplotlib asks arrays of all libraries."""
        out: np.ndarray = self.numpy()
        return out

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Raise AttributeError: memory behind this interface has no owner to keep it alive."""
        raise AttributeError("a tensor has no __array_interface__; pass x.numpy(), a copy of its elements")


_OF_SHAPES: dict[Any, Callable[[Any], Any]] = {
    np.shape: lambda x: x.shape,
    np.ndim: lambda x: x.ndim,
    np.size: lambda x: int(x.size),
}


def _op_of(function: np.ufunc) -> Callable[..., Any] | None:
    name = function.__name__
    if getattr(np, name, None) is not function:  # of another library
        return None
    return NUMPY.get(name)


def on_host(value: Any) -> Any:
    """Return the value with all tensors in it as arrays."""
    if isinstance(value, NumPyProtocols):
        return np.asarray(value)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(map(on_host, value))
    return {k: on_host(v) for k, v in value.items()} if isinstance(value, dict) else value


def _without_copy(x: Tensor, dtype: Any) -> np.ndarray:
    """Return an array in the memory of the tensor. Raises ValueError unless the device works in the host's memory."""
    dispatch.require_execution("asarray", "the elements are only being recorded")
    try:
        out = np.from_dlpack(x.detach(), copy=False)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        problem = "the elements can only be copied to NumPy"
        raise ValueError(message("asarray", problem, fix="leave copy=False out", device=x.device)) from error
    if dtype is not None and np.dtype(dtype) != out.dtype:
        raise ValueError(message("asarray", f"{out.dtype} as {dtype} takes a copy", fix="leave copy=False out"))
    return out
