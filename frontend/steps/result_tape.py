"""The place on the tape of the results of a captured step, and of the arguments that it changes in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from polyhal.autograd.function import attach, opaque
from polyhal.autograd.rebase import base_of, rebase
from polyhal.hal.recording import Recording
from polyhal.steps.arguments import RecordedArguments
from polyhal.steps.backward import CapturedBackward, leaves_of, nodes_of
from polyhal.steps.given import GivenTensor
from polyhal.tensor import Tensor


class _RefusedGradient(NamedTuple):
    """A result whose gradient could not be recorded. As after an eager call, `backward` raises the error."""

    output: int
    leaves: tuple[Tensor | int, ...]
    """The leaves that the result depends on; an argument is represented by its position."""
    error: Exception

    def attach(self, results: Sequence[Tensor], arguments: Sequence[Tensor]) -> None:
        leaves = tuple(arguments[x] if isinstance(x, int) else x for x in self.leaves)
        attach(opaque("captured_step", 1), leaves, (results[self.output],), self._refuse)

    def _refuse(self, *args: Any) -> Any:
        raise self.error.with_traceback(None)


class ResultTape:
    """Puts the results of each run on the tape, and the arguments that the step changes in place."""

    def __init__(
        self,
        made: int,
        written: Sequence[int],
        backward: CapturedBackward | None,
        refused: Sequence[_RefusedGradient],
        leaves: Sequence[int | GivenTensor] = (),
    ) -> None:
        """`leaves` are the leaves that the step makes: numbers of results, and descriptions of leaves over older memory.

        Results are numbered: first the `made` ones, then the arguments at the positions `written`, which are changed.
        """
        self._made = made
        self._written = written
        self._backward = backward
        self._refused = refused
        self._leaves = leaves

    @classmethod
    def record(
        cls,
        recording: Recording,
        results: Sequence[Tensor],
        arguments: RecordedArguments,
        given: Sequence[tuple[Tensor, GivenTensor]],
    ) -> ResultTape | None:
        """Record the gradients of all differentiable results; None if there are none, or the tape was freed already."""
        written = arguments.written
        tensors = [*results, *(arguments.tensors[i] for i in written)]
        outputs = [i for i, x in enumerate(tensors) if x.requires_grad and x.node is not None]
        ends = [tensors[i] for i in outputs]
        made: list[tuple[Tensor, int | GivenTensor]] = [
            *given,
            *((x, i) for i, x in enumerate(results) if x.requires_grad and x.node is None),
        ]
        leaves = [place for _, place in made]
        tensors_of_leaves = [x for x, _ in made]
        if not leaves_of(ends):
            return cls(len(results), [], None, [], leaves) if leaves else None
        refused = []
        backward: CapturedBackward | None
        try:
            backward = CapturedBackward.record(recording, tensors, outputs, arguments, tensors_of_leaves)
        except Exception:
            errors = {i: _error_of(recording, tensors, i, arguments) for i in outputs}
            refused = [_refused(tensors, i, error, arguments) for i, error in errors.items() if error is not None]
            outputs = [i for i, error in errors.items() if error is None]
            backward = CapturedBackward.record(recording, tensors, outputs, arguments, tensors_of_leaves) if outputs else None
        for node in nodes_of(ends):
            node.free()
        return cls(len(results), written, backward, refused, leaves)

    @property
    def saved_values(self) -> list[int]:
        """Values of the graph that the step must return in addition to its results."""
        return [] if self._backward is None else self._backward.saved_values

    def run(self, step: Callable[[], list[Tensor]], arguments: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Run `step`, which returns the results and then the saved values. Returns the results, and the new leaves."""
        bases = [base_of(arguments[i], "jit") for i in self._written]
        outputs = step()
        values = [arguments[i].detach() for i in self._written]
        results = [*outputs[: self._made], *values]
        leaves = [results[x] if isinstance(x, int) else x.find(arguments) for x in self._leaves]
        for leaf in leaves:
            leaf.requires_grad = True
        if self._backward is not None:
            self._backward.attach(results, outputs[self._made :], arguments, leaves)
        for refused in self._refused:
            refused.attach(results, arguments)
        for i, base, value in zip(self._written, bases, values, strict=True):
            rebase(arguments[i], base, value, is_result=True)
        return results, leaves


def _error_of(
    recording: Recording, tensors: Sequence[Tensor], output: int, arguments: RecordedArguments
) -> Exception | None:
    """Return the error that prevents recording the gradient of one result; None if there is none."""
    try:
        CapturedBackward.record(recording, tensors, [output], arguments)
    except Exception as error:
        error.__context__ = None
        return error
    return None


def _refused(
    tensors: Sequence[Tensor], output: int, error: Exception, arguments: RecordedArguments
) -> _RefusedGradient:
    positions = {id(x): i for i, x in enumerate(arguments.leaves)}
    return _RefusedGradient(output, tuple(positions.get(id(x), x) for x in leaves_of([tensors[output]])), error)
