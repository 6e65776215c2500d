"""Live-outs: tensors created in a step and referenced outside, with new values after each run."""

from __future__ import annotations

from typing import Any

from polyhal.hal.compile.scheduler.bindings import ResultMemory
from polyhal.hal.layout import Ref


def copied(ref: Ref) -> Ref:
    """Return a copy of a reference that does not follow rebound memory."""
    return Ref(ref.handle, ref.spec, ref.offset)


class LiveOut:
    """A tensor that the step created and that is still referenced outside."""

    __slots__ = ("_device", "_ref", "bound", "result", "tensor")

    def __init__(self, tensor: Any, ref: Ref, device: Any, result: ResultMemory) -> None:
        """Track `tensor`, stored in `result`; `ref` is the executable's own reference to the value."""
        self.tensor = tensor
        self.result = result
        self.bound: Ref | None = None
        """Reference that the tensor was last bound to."""
        self._ref = ref
        self._device = device

    def rebind(self) -> None:
        """Rebind the tensor to the current memory of its value."""
        self.bound = copied(self._ref)
        self.tensor.buffer, self.tensor.ref, self.tensor.device = self.result.buffer, self.bound, self._device
