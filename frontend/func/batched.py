"""A tensor inside `vmap`: it has the shape of one element and represents the whole batch."""

from __future__ import annotations

from typing import Any

from polyhal.hal.core import dispatch
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.layout import Ref, contiguous
from polyhal.tensor import Tensor


class Level:
    """One call of `vmap` that is running, with `size` elements."""

    __slots__ = ("active", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.active = True


class BatchedTensor(Tensor):
    """An element of a batch. `physical` holds all of them along its first axis."""

    __slots__ = ("level", "physical")

    level: Level
    physical: Tensor
    is_batched = True

    @property
    def ref(self) -> Ref:  # type: ignore[override]
        """A reference to one element, which only shape and dtype can be read from. Raises AutogradError after `vmap`."""
        if not self.level.active:
            problem = "a tensor of a batch was used after vmap returned"
            raise AutogradError(message("vmap", problem, fix="return it from the function"))
        physical = self.physical.ref.spec
        return Ref(None, contiguous(physical.dtype, physical.shape[1:]), 0)

    def __repr__(self) -> str:
        return f"BatchedTensor({self.level.size} of shape {self.shape}, {self.dtype}, {self.device.name})"


def batched(physical: Tensor, level: Level) -> BatchedTensor:
    """Create the tensor that represents all rows of `physical`."""
    out = BatchedTensor.__new__(BatchedTensor)
    out.physical = physical
    out.level = level
    out.device = physical.device
    out.buffer = physical.buffer
    out.requires_grad = physical.requires_grad
    out.stored_grad = None
    out.node = None
    out.hooks = None
    out.index = 0
    return out


def is_batched(x: Tensor | float, level: Level) -> bool:
    """Return whether `x` is an element of the batch of `level`."""
    return type(x) is BatchedTensor and x.level is level


def levels(x: Tensor) -> list[Level]:
    """Return the levels of the batches that `x` is an element of, the innermost `vmap` first."""
    found = []
    while type(x) is BatchedTensor:
        found.append(x.level)
        x = x.physical
    return found


def active_levels() -> list[Level]:
    """Return the levels of all `vmap`s that this thread is in, the innermost first."""
    from polyhal.func.batching import BatchingExecutor

    found = []
    executor: Any = dispatch.thread.executor
    while executor is not None:
        if isinstance(executor, BatchingExecutor):
            found.append(executor.level)
        executor = getattr(executor, "base", None)
    return found
