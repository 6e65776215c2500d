"""The arguments of a call that is recorded: what stands for them, and what the recording leaves behind in them."""

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

    The result of an op is replaced by a tensor with a node of its own above a stand-in for the tape before it, which is not
    part of the step. Others are passed as they are, and `restore` takes back what the recording did to them.
    """

    def __init__(self, recording: Recording, floats: Sequence[float]) -> None:
        self.tensors: list[Tensor] = []
        """As the function sees them."""
        self.leaves: list[Tensor] = []
        """Where the gradient of each goes: itself, or what stands for the tape before it."""
        self._states: list[_State] = []
        self._recording = recording
        self._floats = floats
        self._positions = iter(range(len(floats)))

    def registered(self, arguments: Any) -> Any:
        """The arguments that the function is called with."""
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
                    "backward() is called inside on what depends on an argument that is the result of an op",
                    expected="leaves or detached tensors as arguments of a step with a backward pass of its own",
                    fix="pass x.detach(), or return the loss and call backward() outside",
                )
            )

    def restore(self) -> None:
        """Take the history of the recording off the arguments and their memory: a run gives them one of its own."""
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
    """What autograd keeps with a tensor, its memory and the views listed there."""

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
