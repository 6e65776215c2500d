"""Copies of tensors as Python objects: `copy.copy`, `copy.deepcopy` and pickles.

A pickle holds the elements in host memory, the dtype and the name of the device. A tensor that is unpickled is a leaf.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.errors import AutogradError, DeviceUnavailableError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.returns import Returns, returns
from polyhal.hal.ops.top_level import top_level

if TYPE_CHECKING:
    from polyhal.hal.dtypes import DType
    from polyhal.memory_format import MemoryFormat
    from polyhal.tensor import Tensor

_copy = FUNCTIONS["copy"]
_PLACE: ContextVar[Device | None] = ContextVar("place", default=None)
"""Device of tensors that are being unpickled; None for the device that each was pickled on."""


class Copies:
    """The methods of tensors that make copies, and the elements as `data`."""

    __slots__ = ()

    copies_grad: ClassVar[bool] = True
    """True if a deep copy has a copy of the gradient."""

    def clone(self, *, memory_format: MemoryFormat | None = None) -> Tensor:
        """Copy to new memory; gradients flow through the copy. `memory_format` is a no-op."""
        result: Tensor = _copy(self)
        return result

    def __copy__(self) -> Self:
        """Return another tensor over the same memory, at the same position on the tape."""
        return _shallow(self)  # type: ignore[no-any-return]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy a leaf to new memory. Raises AutogradError for results of ops."""
        return _deep(self, memo)  # type: ignore[no-any-return]

    def __reduce_ex__(self: Any, protocol: Any) -> tuple[Any, ...]:
        """Pickle the elements, with the device by name. A tensor that is unpickled is a leaf. Waits for the device."""
        return _reduced(self)

    @property
    @returns(Returns.VIEW)
    def data(self: Any) -> Tensor:
        """The elements as a tensor that is not on the tape, over the same memory: `detach()`.

        After an assignment the tensor uses the memory of the assigned one. Gradients, hooks and the position on the tape
        remain. In a captured step, assignment raises CaptureError: use `x.data.copy_(value)`.
        """
        result: Tensor = self.detach()
        return result

    @data.setter
    def data(self, value: Tensor) -> None:
        _replace_memory(self, value)


@top_level
@contextmanager
def unpickling_on(device: Device | str) -> Iterator[None]:
    """Put every tensor that is unpickled in a `with` statement on `device` instead of the device that it was pickled on.

    >>> import pickle
    >>> data = pickle.dumps(polyhal.ones(2))
    >>> with polyhal.unpickling_on("numpy"):
    ...     pickle.loads(data).device
    Device('numpy')
    """
    token = _PLACE.set(Device(device))
    try:
        yield
    finally:
        _PLACE.reset(token)


def unpickle_always_on(device: Device | str) -> None:
    """Put every tensor that this thread unpickles later on `device`."""
    _PLACE.set(Device(device))


def _shallow(x: Any) -> Any:
    """Return a tensor of the same class, memory and position on the tape, without gradient and hooks."""
    out = _with_memory(type(x), x, _attributes(x))
    out.requires_grad = x.requires_grad
    out.node, out.index = x.node, x.index
    return out


def _deep(x: Any, memo: dict[int, Any]) -> Any:
    """Copy a leaf to new memory. Raises AutogradError for results of ops.

    The gradient is copied along, except for parameters, as in PyTorch.
    """
    if x.node is not None:
        problem = "the tensor is the result of an op"
        raise AutogradError(message("deepcopy", problem, expected="a leaf", fix="use .detach() first"))
    out = _with_memory(type(x), _copy(x.detach()), copy.deepcopy(_attributes(x), memo))
    memo[id(x)] = out
    out.requires_grad = x.requires_grad
    if x.copies_grad and x.grad is not None:
        out.grad = _deep(x.grad.detach(), memo)
    return out


def _replace_memory(x: Any, value: Any) -> None:
    """Replace `x` by `value`: memory, shape, dtype and device.

    Raises TypeError unless `value` is a tensor, complex if `x` is. Raises CaptureError in a captured step.
    """
    kind = value.dtype.is_complex if hasattr(value, "ref") else None
    if kind is not x.dtype.is_complex:
        problem = f"{value.dtype if kind is not None else type(value).__name__} in place of {x.dtype}"
        raise TypeError(message("data", problem, expected="a tensor, complex for a complex one"))
    if kind:
        _replace_memory(x.real, value.real)
        _replace_memory(x.imag, value.imag)
        x.device = value.device
        return
    if x.buffer is value.buffer and x.ref == value.ref:
        return
    fix = "copy the elements: x.data.copy_(value)"
    dispatch.require_execution("data", "a captured step keeps the memory of its tensors", fix)
    x.buffer, x.ref, x.device = value.buffer, value.ref, value.device
    dispatch.structure.changed()


def _reduced(x: Tensor) -> tuple[Any, ...]:
    """Return the function and the arguments that restore the tensor from a pickle. Waits for the device."""
    return _restored, (type(x), x.numpy(), x.dtype, x.device.name, x.requires_grad, _attributes(x))


def _restored(
    cls: Any, array: np.ndarray, dtype: DType, device: str, requires_grad: bool, fields: dict[str, Any]
) -> Any:
    """Restore a tensor from a pickle. Raises DeviceUnavailableError if this machine has no such device."""
    from polyhal.tensor import make_tensor

    out = _with_memory(cls, make_tensor(array, dtype, place_of(device)), fields)
    out.requires_grad_(requires_grad)
    return out


def place_of(name: str) -> Device:
    """Return the device for a tensor that was pickled on the device of that name. Raises DeviceUnavailableError."""
    place = _PLACE.get()
    if place is not None:
        return place
    try:
        return Device(name)
    except DeviceUnavailableError as error:
        problem = f"a tensor was pickled on device {name!r}, which cannot be opened here: {error}"
        fix = "to choose another device, unpickle under `with polyhal.unpickling_on(device):`"
        raise DeviceUnavailableError(message("unpickle", problem, fix=fix)) from error


def _attributes(x: Tensor) -> dict[str, Any]:
    """Return the values in slots and dictionaries that subclasses add to a tensor."""
    own = itertools.takewhile(lambda cls: "_share" not in cls.__dict__, type(x).__mro__)
    slots = [name for cls in own for name in getattr(cls, "__slots__", ()) if not name.startswith("__")]
    return {name: getattr(x, name) for name in slots if hasattr(x, name)} | getattr(x, "__dict__", {})


def _with_memory(cls: Any, source: Tensor, fields: dict[str, Any]) -> Any:
    """Make a leaf of a class in the memory of `source`."""
    out = cls.__new__(cls)
    out._share(source)
    for name, value in fields.items():
        setattr(out, name, value)
    return out
