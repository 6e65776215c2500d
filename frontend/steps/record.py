"""Recording one call of a function: its graph, the structure of its results, and its backward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

from polyhal.amp.autocast import autocast, autocast_dtype
from polyhal.hal.capture.result import CapturedGraph
from polyhal.hal.errors import CaptureError, message
from polyhal.hal.recording import Recording
from polyhal.steps.backward import CapturedBackward
from polyhal.steps.results import flatten_results
from polyhal.steps.signature import map_arguments
from polyhal.tensor import Tensor


class RecordedCall(NamedTuple):
    """What a call of a function did."""

    captured: CapturedGraph
    results: Any
    """The structure of what it returned."""
    arguments: list[Tensor]
    """The tensors that it was called with, as it saw them."""
    backward: CapturedBackward | None
    """None if no result is differentiable."""


def record_call(
    function: Callable[..., Any], args: Any, kwargs: Any, recording: Recording, floats: Sequence[float], name: str
) -> RecordedCall:
    """Record `function(*args, **kwargs)`. `name` is for messages; float arguments are read from `floats` at each run.

    Raises CaptureError for what cannot be replayed.
    """
    inputs = _Inputs(recording, floats)
    args, kwargs = inputs.registered(args), inputs.registered(kwargs)
    dtype = autocast_dtype()
    with ExitStack() as stack:
        stack.enter_context(recording)
        if dtype is not None:
            stack.enter_context(autocast(dtype))
        result = function(*args, **kwargs)
        tensors: list[Tensor] = []

        def add(x: Tensor) -> int:
            tensors.append(x)
            return len(tensors) - 1

        structure = flatten_results(result, add, {id(x.buffer) for x in inputs.tensors})
        del result
        inputs.check_gradients(name)
        recording.results(tensors)
        differentiable = any(x.requires_grad for x in tensors)
        backward = CapturedBackward.record(recording, tensors, inputs.tensors) if differentiable else None
        if backward is not None:
            recording.pass_on(backward.saved_values)
        tensors.clear()  # else they would be live-outs
        captured = recording.finish()
    return RecordedCall(captured, structure, inputs.tensors, backward)


class _Inputs:
    """The tensors and floats among the arguments of a call, registered as inputs of the graph."""

    def __init__(self, recording: Recording, floats: Sequence[float]) -> None:
        self.tensors: list[Tensor] = []
        """As the function sees them."""
        self._detached: list[Tensor] = []
        """Those that stand for results of ops, whose tape is not part of the step."""
        self._recording = recording
        self._floats = floats
        self._positions = iter(range(len(floats)))

    def registered(self, arguments: Any) -> Any:
        """The arguments that the function is called with."""
        return map_arguments(arguments, self._tensor, self._float)

    def check_gradients(self, name: str) -> None:
        """Raise CaptureError if the step leaves a gradient with an argument that is not a leaf."""
        if any(x.stored_grad is not None for x in self._detached):
            raise CaptureError(
                message(
                    f"jit {name}",
                    "backward() is called inside on what depends on an argument that is the result of an op",
                    expected="leaves or detached tensors as arguments of a step with a backward pass of its own",
                    fix="pass x.detach(), or return the loss and call backward() outside",
                )
            )

    def _tensor(self, x: Tensor) -> Tensor:
        if x.requires_grad and not x.is_leaf:
            x = x.detach()
            x.requires_grad = True
            self._detached.append(x)
        self._recording.argument(x)
        self.tensors.append(x)
        return x

    def _float(self, value: float) -> Any:
        position = next(self._positions)
        return self._recording.recorder.runtime_scalar(partial(self._floats.__getitem__, position), f"float {position}")
