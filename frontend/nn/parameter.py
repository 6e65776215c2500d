"""Parameters, the tensors that training updates, and buffers, which belong to the state but are not learned."""

from __future__ import annotations

from typing import Any

from polyhal.autograd import no_grad
from polyhal.hal import dispatch
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType
from polyhal.tensor import Tensor


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
