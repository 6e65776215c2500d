"""Parameters, the tensors that training updates, and buffers, which belong to the state but are not learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self, cast

import numpy as np

from polyhal.creation import empty
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch import Array
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype, component
from polyhal.hal.errors import PolyhalError, message
from polyhal.hal.layout import Ref
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor, make_tensor
from polyhal.tensor.arrivals import arrived
from polyhal.tensor.complex_tensor import ComplexTensor
from polyhal.tensor.copying import place_of


class UninitializedError(PolyhalError, RuntimeError):
    """A parameter or buffer of a lazy layer was used before the layer was called."""


class Parameter(Tensor):
    """A leaf tensor that requires gradients and registers itself with the module it is assigned to.

    `Parameter(data)` shares the memory of a tensor, and copies anything else (see `polyhal.tensor`). Optimizers train the two
    parts of a complex parameter as real tensors.
    """

    __slots__ = ()
    copies_grad = False

    def __new__(cls, data: Tensor | None = None, *args: Any, dtype: object = None, **keywords: Any) -> Self:
        """Make a `ComplexParameter` of complex numbers."""
        if cls is Parameter and data is not None and _is_complex(data, args[1] if len(args) > 1 else dtype):
            return cast(Self, object.__new__(ComplexParameter))
        return object.__new__(cls)

    def __init__(
        self, data: Tensor, requires_grad: bool = True, dtype: object = None, device: Device | str | None = None
    ) -> None:
        self._share(
            data if isinstance(data, Tensor) and dtype is None and device is None else make_tensor(data, dtype, device)
        )
        self.requires_grad_(requires_grad)

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


class ComplexParameter(ComplexTensor, Parameter):  # type: ignore[misc]
    """A parameter of complex numbers."""

    __slots__ = ()
    copies_grad = False

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Switch gradients on or off. The parts remain the same objects."""
        self._real.requires_grad_(requires_grad)
        self._imag.requires_grad_(requires_grad)
        return self


def _is_complex(data: Any, dtype: object) -> bool:
    """Return whether a tensor of `data` is complex."""
    if dtype is not None:
        return as_dtype(dtype).is_complex
    data = arrived(data, None)
    return data.dtype.is_complex if isinstance(data, Tensor) else np.asarray(data).dtype.kind == "c"


class ModuleBuffer(Tensor):
    """A tensor without gradients that registers itself with the module it is assigned to, as by `register_buffer`.

    `nn.Buffer(data)` shares the memory of a tensor, and copies anything else. If `persistent`, it is part of state dicts.
    """

    persistent: bool
    """True if the buffer is part of state dicts. Not a slot, so that `ComplexTensor` can be a base, too."""

    def __new__(cls, data: Tensor | Sequence[float] | None = None, **keywords: Any) -> Self:
        """Make a `ComplexModuleBuffer` of complex numbers."""
        if cls is ModuleBuffer and data is not None and _is_complex(data, None):
            return cast(Self, object.__new__(ComplexModuleBuffer))
        return object.__new__(cls)

    def __init__(self, data: Tensor | Sequence[float], *, persistent: bool = True) -> None:
        self._share(data if isinstance(data, Tensor) else make_tensor(data))
        self.persistent = persistent


class ComplexModuleBuffer(ComplexTensor, ModuleBuffer):  # type: ignore[misc]
    """A buffer of complex numbers."""


class Uninitialized:
    """A member of a lazy layer, which has dtype and device; shape and elements follow from the first input of the layer.

    It turns into an ordinary member then and remains the same object. Until then, whatever needs its elements or shape
    raises UninitializedError.
    """

    __slots__ = ()

    becomes: ClassVar[type[Tensor]]
    device: Device
    requires_grad: bool

    @property
    def ref(self) -> Ref:
        """Raise UninitializedError: the elements do not exist yet."""
        raise UninitializedError(
            message(
                type(self).__name__,
                "the parameter or buffer of a lazy layer has no shape and no elements yet",
                fix="call the model once, or load a state into it",
            )
        )

    @ref.setter
    def ref(self, value: Ref) -> None:
        _REF.__set__(self, value)

    @property
    def dtype(self) -> DType:
        """Dtype of the elements to come."""
        stored: Ref = _REF.__get__(self)
        return stored.spec.dtype

    def materialize(self, shape: Sequence[int], device: Device | str | None = None, dtype: object = None) -> None:
        """Become an ordinary member of that shape, with arbitrary elements, on the same device and of the same dtype."""
        kind = self.dtype if dtype is None else dtype
        self.adopt(empty(tuple(shape), kind, self.device if device is None else device))

    def adopt(self, source: Tensor) -> None:
        """Become an ordinary member in the memory of `source`."""
        x, requires_grad = cast(Tensor, self), self.requires_grad
        object.__setattr__(self, "__class__", self.becomes)
        x._share(source)
        x.requires_grad = requires_grad
        dispatch.structure.changed()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dtype}, {self.device.name})"

    def __copy__(self: Any) -> Any:
        return type(self)(self.requires_grad, self.device, self.dtype)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        memo[id(self)] = out = self.__copy__()
        return out

    def __reduce_ex__(self: Any, protocol: Any) -> tuple[Any, ...]:
        return _restored, (type(self), self.requires_grad, self.device.name, self.dtype)


def _restored(cls: Any, requires_grad: bool, device: str, dtype: DType) -> Any:
    return cls(requires_grad, place_of(device), dtype)


_REF: Any = Array.__dict__["ref"]
"""The slot that the property `ref` of uninitialized tensors hides."""


class UninitializedParameter(Uninitialized, Parameter):  # type: ignore[misc]
    """A parameter of a lazy layer before its first call."""

    __slots__ = ()
    becomes = Parameter

    def __init__(self, requires_grad: bool = True, device: Device | str | None = None, dtype: object = None) -> None:
        Parameter.__init__(self, empty((0,), dtype, device), requires_grad)


class UninitializedBuffer(Uninitialized, Tensor):  # type: ignore[misc]
    """A buffer of a lazy layer before its first call."""

    __slots__ = ()
    becomes = Tensor

    def __init__(self, requires_grad: bool = False, device: Device | str | None = None, dtype: object = None) -> None:
        self._share(empty((0,), dtype, device))


def is_uninitialized(x: object) -> bool:
    """Return whether `x` is a member of a lazy layer that has no shape yet."""
    return isinstance(x, Uninitialized)


def discard(x: Tensor, device: Device) -> None:
    """Move a leaf to new memory on a device, without its elements and its gradient."""
    if is_uninitialized(x):
        relocate(x, device, None)
        return
    if isinstance(x, ComplexTensor):
        discard(x.real, device)
        discard(x.imag, device)
        x.device = device
        return
    fresh = empty(x.shape, x.dtype, device)
    x.buffer, x.ref, x.device = fresh.buffer, fresh.ref, fresh.device
    x.grad = None
    dispatch.structure.changed()


def relocate(x: Tensor, device: Device | None, dtype: DType | None) -> None:
    """Move a leaf to another device or dtype, keeping the object: optimizers and tied modules reference it.

    Its gradient moves along.
    """
    if isinstance(x, ComplexTensor):
        for part in (x.real, x.imag):
            relocate(part, device, None if dtype is None else component(dtype))
        x.device = x.real.device
        return
    if is_uninitialized(x):
        moved = empty((0,), x.dtype if dtype is None else dtype, x.device if device is None else device)
        x.buffer, x.ref, x.device = moved.buffer, moved.ref, moved.device
        return
    with no_grad():
        moved = x.detach()
        if device is not None:
            moved = moved.to(device)
        if dtype is not None:
            moved = moved.to(dtype)
    x.buffer, x.ref, x.device = moved.buffer, moved.ref, moved.device
    dispatch.structure.changed()
    if x.grad is not None:
        grad = x.grad.detach()
        relocate(grad, device, dtype)
        x.grad = grad
