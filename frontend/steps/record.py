"""Recording one call of a function: its graph, the structure of its results, and its backward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from polyhal.hal.compile.capture.result import CapturedGraph
from polyhal.hal.compile.recording import Recording
from polyhal.mixed_precision import autocast, autocast_dtype
from polyhal.steps.argument_names import argument_names
from polyhal.steps.arguments import RecordedArguments
from polyhal.steps.given import GivenTensor
from polyhal.steps.result_tape import ResultTape
from polyhal.steps.results import flatten_results
from polyhal.steps.signature import CallArguments
from polyhal.tensor import Tensor


class RecordedCall(NamedTuple):
    """Recording of a call."""

    captured: CapturedGraph
    results: Any
    """Structure of the results."""
    arguments: list[Tensor]
    """Tensor arguments as passed to the function."""
    tape: ResultTape | None
    """None if no result is differentiable."""
    names: list[str]
    """Names of the tensor arguments."""


def record_call(
    function: Callable[..., Any], call: CallArguments, recording: Recording, floats: Sequence[float], title: str
) -> RecordedCall:
    """Record a call. `title` names the function in messages; float arguments are read from `floats` at each run.

    Raises CaptureError for calls that cannot be replayed.
    """
    names = argument_names(function, call)
    inputs = RecordedArguments(recording, floats, names.floats)
    args, kwargs = inputs.registered(call)
    dtype = autocast_dtype()
    with ExitStack() as stack:
        stack.callback(inputs.restore)
        stack.enter_context(recording)
        if dtype is not None:
            stack.enter_context(autocast(dtype))
        result = function(*args, **kwargs)
        tensors: list[Tensor] = []

        def add(x: Tensor) -> int:
            tensors.append(x)
            return len(tensors) - 1

        leaves: list[tuple[Tensor, GivenTensor]] = []
        structure = flatten_results(result, add, inputs.tensors, recording.made, leaves)
        del result
        inputs.check_gradients(title)
        recording.results(tensors)
        tape = ResultTape.record(recording, tensors, inputs, leaves)
        if tape is not None:
            recording.pass_on(tape.saved_values)
        del leaves
        tensors.clear()  # else they would be live-outs
        inputs.restore()
        captured = recording.finish()
    return RecordedCall(captured, structure, inputs.tensors, tape, names.tensors)
