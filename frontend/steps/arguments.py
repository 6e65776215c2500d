"""Arguments of a recorded call, their placeholders, and their state on the tape before the recording."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from polyhal.hal.compile.recording import Recording
from polyhal.hal.errors import CaptureError, message
from polyhal.steps.signature import CallArguments
from polyhal.tape.function import attach, opaque
from polyhal.tape.rebase import TapePlace
from polyhal.tape.tape import position
from polyhal.tensor import Tensor

_ARGUMENT = opaque("argument", 1)


class RecordedArguments:
    """The tensors and floats among the arguments of a call, registered as inputs of the graph.

    An argument that is the result of an op is replaced by a tensor whose node has a new leaf as its parent: the tape before
    it is not part of the step. Other arguments are passed unchanged. `restore` removes all nodes of the recording from
    them.
    """

    def __init__(self, recording: Recording, floats: Sequence[float], names: Sequence[str]) -> None:
        """`names` are the names of the floats."""
        self.tensors: list[Tensor] = []
        """The tensors that the function is called with."""
        self.leaves: list[Tensor] = []
        """The leaf that receives the gradient of each: the tensor itself, or the new leaf above it."""
        self.start = position()
        """Position on the tape before the recording's nodes."""
        self._hidden: list[TapePlace] = []
        """Arguments that are results of ops, whose memory has no history in the recording."""
        self._recording = recording
        self._floats = floats
        self._names = iter(enumerate(names))

    def registered(self, call: CallArguments) -> tuple[Any, Any]:
        """Return the arguments that the function is called with, by position and by name."""
        return call.mapped(self._tensor, self._float)

    def check_gradients(self, title: str) -> None:
        """Raise CaptureError if the step leaves a gradient with an argument that is not a leaf."""
        if any(
            leaf.stored_grad is not None for leaf, x in zip(self.leaves, self.tensors, strict=True) if leaf is not x
        ):
            raise CaptureError(
                message(
                    title,
                    "backward() is called inside, on a result that depends on an argument that is the result of an op",
                    expected="leaves or detached tensors as arguments of a step with a backward pass of its own",
                    fix="pass x.detach(), or return the loss and call backward() outside",
                )
            )

    def restore(self) -> None:
        """Remove the history of the recording from all tensors from outside; each run records its own."""
        self._recording.recorder.restore_places()
        while self._hidden:
            self._hidden.pop().restore()

    def _tensor(self, x: Tensor) -> Tensor:
        leaf = x
        if x.requires_grad and not x.is_leaf:
            self._hidden.append(TapePlace(x))
            x.buffer.history, x.buffer.detached = None, ()
            leaf = x.detach()
            leaf.requires_grad = True
            x = x.detach()
            attach(_ARGUMENT, (leaf,), (x,), lambda node, grads, needs: (grads[0],))
        self._recording.argument(x)
        self.tensors.append(x)
        self.leaves.append(leaf)
        return x

    def _float(self, value: float) -> Any:
        position, name = next(self._names)
        return self._recording.recorder.runtime_scalar(partial(self._floats.__getitem__, position), name)
