"""The place on the tape of the results of a captured step, and of the arguments that it changes in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from polyhal.hal.compile.recording import Recording
from polyhal.steps.arguments import RecordedArguments
from polyhal.steps.backward import CapturedBackward
from polyhal.steps.given import GivenTensor
from polyhal.steps.outer_tape import OuterTape
from polyhal.steps.written import WrittenMemory, written_by
from polyhal.tape.function import attach, opaque
from polyhal.tape.rebase import TapePlace
from polyhal.tape.tape import GradNode
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
        written: Sequence[WrittenMemory],
        backward: CapturedBackward | None,
        refused: Sequence[_RefusedGradient],
        leaves: Sequence[int | GivenTensor] = (),
    ) -> None:
        """`leaves` are the leaves that the step creates: numbers of results, and descriptions of leaves in older memory.

        Results are numbered: first the `made` ones, then the memory from outside that is `written` on the tape.
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
        """Record the gradients of all differentiable results whose part of the tape is not freed; None if there are none."""
        recorder = recording.recorder
        written, contents = written_by(recorder.places, arguments.tensors, recorder.made)
        outer = OuterTape(arguments.start, [*recorder.places, *map(TapePlace, recorder.tensors_read())])
        tensors = [*results, *contents]
        outputs = [i for i, x in enumerate(tensors) if x.requires_grad and x.node is not None and not outer.is_freed(x)]
        ends = [tensors[i] for i in outputs]
        made: list[tuple[Tensor, int | GivenTensor]] = [
            *given,
            *((x, i) for i, x in enumerate(results) if x.requires_grad and x.node is None),
        ]
        leaves = [place for _, place in made]
        tensors_of_leaves = [x for x, _ in made]
        if not outer.leaves_of(ends):
            return cls(len(results), [], None, [], leaves) if leaves else None
        refused = []
        backward: CapturedBackward | None
        nodes = outer.nodes_of(ends)
        try:
            with _kept(nodes):
                backward = CapturedBackward.record(recording, tensors, outputs, arguments, outer, tensors_of_leaves)
        except Exception:
            errors = {}
            for i in outputs:
                with _kept(nodes):
                    errors[i] = _error_of(recording, tensors, i, arguments, outer)
            refused = [
                _refused(tensors, i, error, arguments, outer) for i, error in errors.items() if error is not None
            ]
            outputs = [i for i, error in errors.items() if error is None]
            backward = None
            if outputs:
                backward = CapturedBackward.record(recording, tensors, outputs, arguments, outer, tensors_of_leaves)
        for node in nodes:
            node.free()
        return cls(len(results), written, backward, refused, leaves)

    @property
    def saved_values(self) -> list[int]:
        """Values of the graph that the step must return in addition to its results."""
        return [] if self._backward is None else self._backward.saved_values

    def run(self, step: Callable[[], list[Tensor]], arguments: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Run `step`, which returns the results and then the saved values. Returns the results, and the new leaves."""
        found = [w.find(arguments) for w in self._written]
        outputs = step()
        values = [w.whole.detach() for w in found]
        results = [*outputs[: self._made], *values]
        leaves = [results[x] if isinstance(x, int) else x.find(arguments) for x in self._leaves]
        for leaf in leaves:
            leaf.requires_grad = True
        if self._backward is not None:
            self._backward.attach(results, outputs[self._made :], arguments, leaves)
        for refused in self._refused:
            refused.attach(results, arguments)
        for w, value in zip(found, values, strict=True):
            w.replace(value)
        return results, leaves


@contextmanager
def _kept(nodes: Sequence[GradNode]) -> Iterator[None]:
    """Let nodes have the same saved values after a block, which may recompute the values of checkpointed regions."""
    before = [(node, node.region, node.saved) for node in nodes]
    try:
        yield
    finally:
        for node, region, saved in before:
            node.region, node.saved = region, saved
            if region is not None:
                region[0].forget()


def _error_of(
    recording: Recording, tensors: Sequence[Tensor], output: int, arguments: RecordedArguments, outer: OuterTape
) -> Exception | None:
    """Return the error that prevents recording the gradient of one result; None if there is none."""
    try:
        CapturedBackward.record(recording, tensors, [output], arguments, outer)
    except Exception as error:
        error.__context__ = None
        return error
    return None


def _refused(
    tensors: Sequence[Tensor], output: int, error: Exception, arguments: RecordedArguments, outer: OuterTape
) -> _RefusedGradient:
    positions = {id(x): i for i, x in enumerate(arguments.leaves)}
    found = (positions.get(id(x), outer.receiver(x)) for x in outer.leaves_of([tensors[output]]))
    return _RefusedGradient(output, tuple(found), error)
