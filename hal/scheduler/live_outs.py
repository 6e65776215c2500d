"""Live-outs: tensors that a step makes and that something outside refers to, with new values after each run."""

from __future__ import annotations

from typing import Any

from polyhal.hal.layout import Ref
from polyhal.hal.scheduler.bindings import ResultMemory


def copied(ref: Ref) -> Ref:
    """A reference to the same place, which does not follow the memory of a step."""
    return Ref(ref.handle, ref.spec, ref.offset)


class LiveOut:
    """A tensor that the step made and that something outside still refers to."""

    __slots__ = ("_device", "_ref", "bound", "result", "tensor")

    def __init__(self, tensor: Any, ref: Ref, device: Any, result: ResultMemory) -> None:
        """`ref` is the executable's own reference to the value."""
        self.tensor = tensor
        self.result = result
        self.bound: Ref | None = None
        """The reference that the tensor got last."""
        self._ref = ref
        self._device = device

    def rebind(self) -> None:
        """Let the tensor refer to where its value lies now."""
        self.bound = copied(self._ref)
        self.tensor.buffer, self.tensor.ref, self.tensor.device = self.result.buffer, self.bound, self._device
