"""Gradients of the results of a captured step: the backward pass is a captured step as well.

It is recorded right after the forward step, while the tape exists, and compiled when it first runs. In addition to
its results, the forward step returns the values that the backward pass reads.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from polyhal.hal.compile.capture.absent_gradients import without_absent
from polyhal.hal.compile.capture.lru_cache import LRUCache
from polyhal.hal.compile.capture.result import CapturedGraph, StepInput
from polyhal.hal.compile.ir.graph import CapturedConstant, Graph
from polyhal.hal.compile.recording import Recording
from polyhal.hal.compile.scheduler.executable import Executable
from polyhal.hal.core import dispatch
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar
from polyhal.hal.core.memory.buffer import Buffer
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.layout import contiguous
from polyhal.steps.arguments import RecordedArguments
from polyhal.steps.outer_tape import OuterTape
from polyhal.tape.engine import differentiate
from polyhal.tape.function import attach, opaque
from polyhal.tape.modes import no_grad
from polyhal.tape.tape import GradNode, SavedInput
from polyhal.tensor import Tensor


class CapturedBackward:
    """The backward pass of a captured step, from gradients of its results to gradients of leaves."""

    def __init__(
        self,
        captured: CapturedGraph,
        outputs: Sequence[int],
        leaves: Sequence[Tensor],
        saved: Sequence[StepInput | int],
        arguments: RecordedArguments,
        new_leaves: Sequence[Tensor],
        outer: OuterTape,
        reached_by: Sequence[frozenset[int]],
        constants: Mapping[int, frozenset[int]],
    ) -> None:
        """`outputs` are the numbers of differentiable results, and `leaves` the leaves that these depend on.

        `saved` are inputs of the forward step and values of its graph that the backward pass needs. `arguments` are the
        arguments of the recorded call, `new_leaves` the leaves that it makes and returns. `reached_by` has, for each
        leaf, the positions of the `outputs` that depend on it, and `constants`, for values that gradient rules made of
        nothing, the positions of the `outputs` whose gradients led to the rule.
        """
        self._captured = captured
        self._outputs = outputs
        self._saved = saved
        self._reached_by = reached_by
        self._constants = constants
        self._scalars = _freeze_scalars(captured)
        self._programs: LRUCache[tuple[int, ...], _Program] = LRUCache(_MAX_PROGRAMS)
        """By the positions of the results without a gradient."""
        self._lock = threading.Lock()
        self._op = opaque("captured_step", len(outputs))
        positions = {id(x): i for i, x in enumerate(arguments.leaves)}
        made = {id(x): i for i, x in enumerate(new_leaves)}
        self._leaves = [None if id(x) in made else outer.receiver(x) for x in leaves]
        """Receivers of gradients; None for a leaf that each run makes: the recorded one must not outlive the recording."""
        self._made = {i: made[id(x)] for i, x in enumerate(leaves) if id(x) in made}
        """The number, among the new leaves, of each leaf that the step makes."""
        self._argument_of = {i: positions[id(x)] for i, x in enumerate(leaves) if id(x) in positions}
        """The position of the argument whose gradient each leaf receives."""

    @classmethod
    def record(
        cls,
        recording: Recording,
        results: Sequence[Tensor],
        outputs: Sequence[int],
        arguments: RecordedArguments,
        outer: OuterTape,
        new_leaves: Sequence[Tensor] = (),
    ) -> CapturedBackward:
        """Record the gradients of the `results` with the numbers `outputs`. Keeps the tape. Raises errors of gradient rules."""
        differentiable = [results[i] for i in outputs]
        leaves = outer.leaves_of(differentiable)
        following = Recording(recording)
        rules = following.recorder.gradient_rules = []
        seeds = [following.placeholder(x.device, contiguous(x.dtype, x.shape)) for x in differentiable]
        with _without_hooks(leaves), following, no_grad():
            gradients = differentiate(differentiable, seeds, leaves, retain_graph=True)
            following.results(g for g in gradients if g is not None)
        reached = [leaf for leaf, g in zip(leaves, gradients, strict=True) if g is not None]
        ways = [{id(x) for x in outer.leaves_of([result])} for result in differentiable]
        reached_by = [frozenset(i for i, found in enumerate(ways) if id(leaf) in found) for leaf in reached]
        is_real = not any(x.dtype.is_complex for x in (*differentiable, *leaves))
        nodes = [set(outer.nodes_of([result])) for result in differentiable]
        del gradients, seeds  # else they would be live-outs
        captured = following.finish()
        constants = _constants(captured.graph, rules, nodes) if is_real else {}
        forwarded = following.forwarded
        return cls(captured, outputs, reached, forwarded, arguments, new_leaves, outer, reached_by, constants)

    @property
    def saved_values(self) -> list[int]:
        """Values of the forward graph that the step must return in addition to its results."""
        return [x for x in self._saved if isinstance(x, int)]

    def attach(
        self,
        results: Sequence[Tensor],
        values: Sequence[Tensor],
        arguments: Sequence[Tensor],
        new_leaves: Sequence[Tensor] = (),
    ) -> None:
        """Put results of a run on the tape. `values` are the `saved_values` of that run."""
        remaining = iter(values)
        saved = [arguments[x.position] if isinstance(x, StepInput) else next(remaining) for x in self._saved]
        constants = [s.buffer for s in self._captured.sources if isinstance(s, CapturedConstant)]
        state = _RunState([x.source.value for x in self._scalars], [(b, b.version) for b in constants])
        present = {i: arguments[position] for i, position in self._argument_of.items()}
        present |= {i: new_leaves[number] for i, number in self._made.items()}
        leaves = tuple(present.get(i, x) for i, x in enumerate(self._leaves))
        node = attach(self._op, leaves, tuple(results[i] for i in self._outputs), partial(self._run, state))
        node.saved["saved"] = tuple(SavedInput(x, x.buffer.version) for x in saved)

    def _run(self, state: _RunState, node: GradNode, grads: list[Any], needs: tuple[bool, ...]) -> Any:
        """Return the gradient rule of the node: gradients of the leaves."""
        state.check()
        absent = tuple(i for i, g in enumerate(grads) if g is None)
        seeds = [g if g.is_contiguous else g.clone() for g in grads if g is not None]
        present = iter(seeds)
        # A program does not read the arguments in the places of absent gradients.
        passed = [seeds[0] if g is None else next(present) for g in grads]
        with self._lock:
            program = self._programs.get(absent)
            if program is None:
                program = self._programs.add(absent, self._program(absent))
            for scalar, value in zip(self._scalars, state.scalars, strict=True):
                scalar.box[0] = value
            gradients = program.executable.run([*passed, *node.load("saved")])
        # After the gradients come values that a checkpointed region computed again, and that the tape still holds.
        found = [None if place is None else gradients[place] for place in program.places[: len(needs)]]
        return tuple(g if needed else None for g, needed in zip(found, needs, strict=True))

    def _program(self, absent: Sequence[int]) -> _Program:
        if not absent:
            return _Program(Executable(self._captured), range(len(self._captured.results)))
        partial_graph = without_absent(self._captured, len(self._outputs), absent, self._constants)
        places = list(partial_graph.results)
        for leaf, outputs in enumerate(self._reached_by):
            if outputs <= set(absent):  # zeros that do not depend on the gradients
                places[leaf] = None
        return _Program(Executable(partial_graph.captured), places)


def _constants(
    graph: Graph, rules: Sequence[tuple[int, object]], nodes_of: Sequence[set[GradNode]]
) -> dict[int, frozenset[int]]:
    """Return the values that gradient rules made of nothing, with the results that depend on the node of the rule.

    `rules` are the rules in their order, each from a position in the graph on; `nodes_of` are the nodes of each result. Other
    nodes were differentiated within a rule.
    """
    reached = ((start, frozenset(i for i, nodes in enumerate(nodes_of) if node in nodes)) for start, node in rules)
    known = [(start, results) for start, results in reached if results]
    starts = [start for start, _ in known]
    return {
        value: known[rule - 1][1]
        for i, node in enumerate(graph.nodes)
        if not node.reads and not node.place.checkpoint and (rule := bisect_right(starts, i))
        for value in node.outputs
    }


_MAX_PROGRAMS = 4
"""Sets of results without a gradient for which a step keeps a backward pass."""


class _Program(NamedTuple):
    """A backward pass for one set of results that have a gradient."""

    executable: Executable
    places: Sequence[int | None]
    """For each leaf the position of its gradient among the results; None if no gradient reaches it."""


class _RunState(NamedTuple):
    """State of a run of the forward step for its backward pass, except tensors."""

    scalars: list[Any]
    """The values of the runtime scalars that the backward pass reads."""
    constants: list[tuple[Buffer, int]]
    """The buffers of captured constants, with their versions."""

    def check(self) -> None:
        """Raise AutogradError or CaptureError unless the backward pass may run now."""
        if dispatch.thread.grad_enabled:
            raise AutogradError(
                message(
                    "jit",
                    "the gradient of a captured step is differentiated again",
                    fix="differentiate inside the captured function, or call the function without jit",
                )
            )
        dispatch.require_execution(
            "jit",
            "a captured function was called outside and backward() inside of another captured function",
            fix="call both inside",
        )
        if any(buffer.version != version for buffer, version in self.constants):
            raise AutogradError(
                message(
                    "jit",
                    "a parameter was changed between a captured forward pass and its backward pass",
                    fix="call backward() before the optimizer's step",
                )
            )


class _FrozenScalar(NamedTuple):
    """A runtime scalar of the forward step, and the box from which the backward pass reads its value in that run."""

    source: RuntimeScalar
    box: list[Any]


def _freeze_scalars(captured: CapturedGraph) -> list[_FrozenScalar]:
    """Let a backward graph read the runtime scalars' values in the forward run, in place of their present values."""
    frozen: list[_FrozenScalar] = []
    for i, source in enumerate(captured.sources):
        if isinstance(source, RuntimeScalar):
            box = [source.value]
            frozen.append(_FrozenScalar(source, box))
            scalar = RuntimeScalar(partial(box.__getitem__, 0), source.name)
            captured.sources[i] = scalar
            captured.replay_actions.append(scalar.refresh)
    return frozen


@contextmanager
def _without_hooks(leaves: Sequence[Tensor]) -> Iterator[None]:
    """Take hooks off the leaves inside the block: they are called when the gradients are passed on."""
    hooks = [leaf.hooks for leaf in leaves]
    for leaf in leaves:
        leaf.hooks = None
    try:
        yield
    finally:
        for leaf, own in zip(leaves, hooks, strict=True):
            leaf.hooks = own
