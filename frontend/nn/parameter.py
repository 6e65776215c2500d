"""Parameters, the tensors that training updates, and buffers, which belong to the state but are not learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

from polyhal.autograd import no_grad
from polyhal.creation import empty
from polyhal.hal import dispatch
from polyhal.hal.device import Device
from polyhal.hal.dispatch import Array
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import PolyhalError, message
from polyhal.hal.layout import Ref
from polyhal.tensor import Tensor


class UninitializedError(PolyhalError, RuntimeError):
    """A parameter or buffer of a lazy layer was used before the layer was called."""


class Parameter(Tensor):
    """A leaf tensor that requires gradients and registers itself with the module it is assigned to.

    `Parameter(data)` shares the memory of a tensor, and copies anything else (see `Tensor`).
    """

    __slots__ = ()

    def __init__(
        self, data: Any, requires_grad: bool = True, dtype: object = None, device: Device | str | None = None
    ) -> None:
        _share(
            self, data if isinstance(data, Tensor) and dtype is None and device is None else Tensor(data, dtype, device)
        )
        self.requires_grad_(requires_grad)

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


class ModuleBuffer(Tensor):
    """A tensor without gradients that registers itself with the module it is assigned to, as by `register_buffer`.

    `nn.Buffer(data)` shares the memory of a tensor, and copies anything else. If `persistent`, it is part of state dicts.
    """

    __slots__ = ("persistent",)

    def __init__(self, data: Any, *, persistent: bool = True) -> None:
        _share(self, data if isinstance(data, Tensor) else Tensor(data))
        self.persistent = persistent


class Uninitialized:
    """A member of a lazy layer, which has dtype and device, and gets shape and elements when the layer first sees an input.

    It turns into an ordinary member then and remains the same object. Until then, whatever needs its elements or shape
    raises UninitializedError.
    """

    __slots__ = ()

    becomes: ClassVar[type[Tensor]]
    device: Device
    requires_grad: bool

    @property
    def ref(self) -> Ref:
        """No elements are there to refer to. Raises UninitializedError."""
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
        _share(x, source)
        x.requires_grad = requires_grad
        dispatch.structure.changed()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dtype}, {self.device.name})"


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
        _share(self, empty((0,), dtype, device))


def is_uninitialized(x: object) -> bool:
    """Whether `x` is a member of a lazy layer that has no shape yet."""
    return isinstance(x, Uninitialized)


def discard(x: Tensor, device: Device) -> None:
    """Move a leaf to new memory on a device, without its elements and its gradient."""
    if is_uninitialized(x):
        relocate(x, device, None)
        return
    fresh = empty(x.shape, x.dtype, device)
    x.buffer, x.ref, x.device = fresh.buffer, fresh.ref, fresh.device
    x.grad = None
    dispatch.structure.changed()


def _share(x: Tensor, source: Tensor) -> None:
    """Make `x` a leaf in the memory of `source`."""
    x.buffer, x.ref, x.device = source.buffer, source.ref, source.device
    x.requires_grad = False
    x.stored_grad = None
    x.node = None
    x.index = 0
    x.hooks = None
    dispatch.thread.executor.track(x)


def relocate(x: Tensor, device: Device | None, dtype: DType | None) -> None:
    """Move a leaf to another device or dtype, keeping the object: optimizers and tied modules reference it.

    Its gradient moves along.
    """
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
