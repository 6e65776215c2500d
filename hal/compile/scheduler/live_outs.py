"""Live-outs: tensors created in a step and referenced outside, with new values after each run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyhal.hal.compile.scheduler.outputs import PlacedOutput
    from polyhal.hal.layout import Ref


class LiveOut:
    """A tensor that the step created and that is still referenced outside."""

    __slots__ = ("_output", "bound", "result", "tensor")

    def __init__(self, tensor: Any, output: PlacedOutput) -> None:
        """Track `tensor`, an output of the graph."""
        self.tensor = tensor
        self.result = output.memory
        self.bound: Ref | None = None
        """Reference that the tensor was last bound to."""
        self._output = output

    def rebind(self) -> None:
        """Rebind the tensor to the current memory of its value."""
        output = self._output
        self.bound = output.fixed()
        self.tensor.buffer, self.tensor.ref, self.tensor.device = self.result.buffer, self.bound, output.device
