"""The arguments of a call that is recorded, their stand-ins, and their state on the tape before the recording."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from polyhal.autograd.function import attach, opaque
from polyhal.hal.errors import CaptureError, message
from polyhal.hal.recording import Recording
from polyhal.steps.signature import map_arguments
from polyhal.tensor import Tensor

_ARGUMENT = opaque("argument", 1)


class RecordedArguments:
    """The tensors and floats among the arguments of a call, registered as inputs of the graph.

    An argument that is the result of an op is replaced by a tensor whose node has a new leaf as its parent: the tape before
    it is not part of the step. Other arguments are passed unchanged. `restore` removes all nodes of the recording from
    them.
    """

    def __init__(self, recording: Recording, floats: Sequence[float]) -> None:
        self.tensors: list[Tensor] = []
        """The tensors that the function is called with."""
        self.leaves: list[Tensor] = []
        """The leaf that receives the gradient of each: the tensor itself, or the new leaf above it."""
        self._states: list[_State] = []
        self._recording = recording
        self._floats = floats
        self._positions = iter(range(len(floats)))

    def registered(self, arguments: Any) -> Any:
        """Return the arguments that the function is called with."""
        return map_arguments(arguments, self._tensor, self._float)

    @property
    def written(self) -> list[int]:
        """The positions of the arguments that were changed in place on the tape."""
        return [i for i, state in enumerate(self._states) if self.tensors[i].node is not state.node]

    def check_gradients(self, name: str) -> None:
        """Raise CaptureError if the step leaves a gradient with an argument that is not a leaf."""
        if any(
            leaf.stored_grad is not None for leaf, x in zip(self.leaves, self.tensors, strict=True) if leaf is not x
        ):
            raise CaptureError(
                message(
                    f"jit {name}",
                    "backward() is called inside, on a result that depends on an argument that is the result of an op",
                    expected="leaves or detached tensors as arguments of a step with a backward pass of its own",
                    fix="pass x.detach(), or return the loss and call backward() outside",
                )
            )

    def restore(self) -> None:
        """Remove the history of the recording from the arguments and their memory; each run records its own."""
        for x, leaf, state in zip(self.tensors, self.leaves, self._states, strict=False):
            state.restore()
            if x is not leaf:
                x.node = state.node

    def _tensor(self, x: Tensor) -> Tensor:
        self._states.append(_State(x))
        leaf = x
        if x.requires_grad and not x.is_leaf:
            leaf = x.detach()
            leaf.requires_grad = True
            x = x.detach()
            attach(_ARGUMENT, (leaf,), (x,), lambda node, grads, needs: (grads[0],))
            self._states[-1].node = x.node
        self._recording.argument(x)
        self.tensors.append(x)
        self.leaves.append(leaf)
        return x

    def _float(self, value: float) -> Any:
        position = next(self._positions)
        return self._recording.recorder.runtime_scalar(partial(self._floats.__getitem__, position), f"float {position}")


class _State:
    """The place on the tape of a tensor, of its memory, and of the views listed with the memory."""

    __slots__ = ("_buffer", "_detached", "_history", "_tensors", "_views", "node")

    def __init__(self, x: Tensor) -> None:
        self.node = x.node
        self._buffer = x.buffer
        self._history = getattr(x.buffer, "history", None)
        self._detached = getattr(x.buffer, "detached", ())
        self._views = getattr(x.buffer, "views", None)
        listed = [v for v in (ref() for ref in self._views or ()) if v is not None]
        self._tensors = [(v, v.node, v.index, v.requires_grad) for v in (x, *listed)]

    def restore(self) -> None:
        buffer = self._buffer
        if (
            getattr(buffer, "history", None) is self._history
            and getattr(buffer, "detached", self._detached) is self._detached
        ):
            return
        buffer.history, buffer.detached, buffer.views = self._history, self._detached, self._views
        for x, *place in self._tensors:
            x.node, x.index, x.requires_grad = place
