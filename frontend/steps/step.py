"""A captured step: a recorded graph with its guards, and the executable that runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

from polyhal.hal.compile.capture.difference import RETURNS_NUMBERS, Difference
from polyhal.hal.compile.capture.gradients import LeafGradient
from polyhal.hal.compile.capture.replay_cache import ReplayStep
from polyhal.hal.compile.capture.result import CapturedGraph
from polyhal.hal.compile.ir.graph import Graph
from polyhal.hal.compile.scheduler.activity import StepActivity
from polyhal.hal.compile.scheduler.executable import Executable
from polyhal.hal.compile.scheduler.placement import Placement
from polyhal.hal.compile.scheduler.profile import StepProfile
from polyhal.hal.compile.scheduler.report import MemoryReport
from polyhal.hal.compile.scheduler.short_run import short_run
from polyhal.hal.core import dispatch
from polyhal.hal.system.diagnostics.explain_graph import explain
from polyhal.steps.result_tape import ResultTape
from polyhal.steps.results import OutputIndex, constants, fill_results
from polyhal.steps.signature import CallArguments
from polyhal.steps.steady_replay import SteadyReplay
from polyhal.tensor import Tensor

_NO_ARGUMENTS = CallArguments((), {})


class CapturedStep(ReplayStep[CallArguments]):
    """A recorded step that can be replayed."""

    number_fix = "pass the number as a float argument, or write polyhal.runtime_scalar(lambda: ...)"

    def __init__(
        self,
        captured: CapturedGraph,
        results: Any = None,
        arguments: Sequence[Tensor] = (),
        tape: ResultTape | None = None,
        names: Sequence[str] = (),
        budget: int | None = None,
    ) -> None:
        """`results` is the structure of the results of the step; `arguments` are the tensors that it was recorded with.

        `names` are the names of these tensors. `budget` limits the bytes that the step needs on each device.
        """
        super().__init__(captured)
        self.results = results
        self.argument_names = list(names)
        """Names of the tensor arguments, in order; none for a block."""
        self._only = results.index if type(results) is OutputIndex else None
        """The number of the output that is the result; None for other structures."""
        self._count = len(captured.results)
        self._constants = constants(results)
        self._tape = tape
        self._budget = budget
        self._modes = -1
        self._argument_of = {id(x): i for i, x in enumerate(arguments)}
        """Positions of arguments, whose own gradients the step may read or replace."""
        self._watch(captured)

    @cached_property
    def executable(self) -> Executable:
        """The planned program with its memory. Raises OutOfMemoryError if it needs more than the budget."""
        return Executable(self.captured, self._budget)

    @property
    def graph(self) -> Graph:
        """The graph as recorded, before passes."""
        return self.captured.graph

    def same_as(self, later: CapturedStep) -> bool:
        """Return whether a later recording has an equal graph and returns equal numbers."""
        return super().same_as(later) and self._constants == later._constants

    def difference(self, later: CapturedStep) -> Difference | None:
        """Return why a replay would not repeat a later call; None if the later one is a step of its own."""
        found = super().difference(later)
        return RETURNS_NUMBERS if found is None and self._constants != later._constants else found

    def holds(self, call: CallArguments) -> bool:
        """Return whether structure, modes of modules and gradients are as they were when the step was recorded."""
        if self._version != dispatch.structure.version or not self.flags_hold():
            return False
        if self._modes != dispatch.structure.modes:
            if not self.captured.modes_match():
                return False
            self._modes = dispatch.structure.modes
        read = self._gradients.read
        return not read or all(g.matches(self._current(g.leaf, call.tensors)) for g in read)

    @property
    def checked(self) -> tuple[int, int]:
        """The versions of the structure and of the modes of modules for which the guards hold."""
        return self._version, self._modes

    @property
    def has_leaves(self) -> bool:
        """True if the step reads tensors that it was not passed."""
        return bool(self._leaf_flags)

    def flags_hold(self) -> bool:
        """Return whether tensors require gradients or not as when the step was recorded."""
        for x, flag in self._leaf_flags:  # noqa: SIM110 - a generator takes twice as long
            if x.requires_grad is not flag:
                return False
        return True

    def repeating(self, call: CallArguments, floats: list[float]) -> SteadyReplay | None:
        """Return the repetition of `call`, which this step has just replayed; None where every call needs all guards.

        `floats` is where the step reads its float arguments.
        """
        if self._gradients.read or self.executable.checks_values:
            return None
        return SteadyReplay.of(self, call, floats)

    def steady_run(self) -> Callable[[Sequence[Tensor]], Any]:
        """Return the fastest function that runs the step with the tensors of a call, and returns its results."""
        returns_one = self._only == 0 and self._count == 1 and self._gradients.are_kept and self._tape is None
        short = short_run(self.executable) if returns_one else None
        return short or self.run_with

    def run(self, call: CallArguments = _NO_ARGUMENTS) -> Any:
        """Run once. Returns the results of the step, with new tensors."""
        return self.run_with(call.tensors)

    def run_with(self, tensors: Sequence[Tensor]) -> Any:
        """Run once with the tensors of a call. Returns the results of the step, with new tensors."""
        gradients = self._gradients
        if gradients.are_kept and self._tape is None:
            outputs = self.executable.run(tensors, self._count)
            return fill_results(self.results, outputs, tensors) if self._only is None else outputs[self._only]
        current = self._current
        inputs: list[Any] = [*tensors, *[current(g.leaf, tensors).stored_grad for g in gradients.passed]]
        replaced = [(current(g.leaf, tensors), g.final) for g in gradients.replaced]
        step = partial(self.executable.run, inputs, self._count)
        leaves: Sequence[Tensor] = ()
        if self._tape is None:
            outputs = step()
        else:
            outputs, leaves = self._tape.run(step, tensors)
        for leaf, gradient in replaced:
            leaf.stored_grad = gradient
        return fill_results(self.results, outputs, tensors, leaves)

    def replay(self) -> None:
        """Run a step without arguments once more. Tensors made in it have the new values afterwards."""
        self.run()

    def explain(self) -> str:
        """Report the effect of each pass on the recorded graph, and how and why each op runs."""
        return explain(self.executable)

    def memory_report(self) -> MemoryReport:
        """Report the memory that the step needs, by kind, and its largest tensors."""
        return self.executable.memory_report()

    def placement(self) -> Placement:
        """Report the device of each op, the traffic between devices, and the times of the workers so far."""
        return self.executable.placement()

    @staticmethod
    def activity() -> StepActivity:
        """Time the work of each device inside a block: `with step.activity() as a: step(...)`, then `print(a)`."""
        return StepActivity()

    @staticmethod
    def profile() -> StepProfile:
        """Time the captured steps inside a block, node by node: `with step.profile() as p: step(...)`, then `print(p)`."""
        return StepProfile()

    def adopt(self, later: CapturedStep) -> None:
        """Take over live-outs and gradients of a later recording of the same step, whose tensors are in use now."""
        captured = later.captured
        captured.release_gradients()
        self.captured.live_outs = captured.live_outs
        self.captured.gradients = captured.gradients
        self._watch(captured)

    def _watch(self, captured: CapturedGraph) -> None:
        """Note the structure, the gradients, and the tensors that must require gradients before a run, or must not."""
        self._version = dispatch.structure.version
        self._gradients = _GradientUses(captured.gradients)
        self._leaf_flags = tuple(captured.leaf_flags)

    def _current(self, leaf: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        """Return the tensor of this run that corresponds to a leaf of the recording."""
        position = self._argument_of.get(id(leaf))
        return leaf if position is None or position >= len(tensors) else tensors[position]


class _GradientUses:
    """The gradients of a step by use; most are only replaced."""

    __slots__ = ("are_kept", "passed", "read", "replaced")

    def __init__(self, gradients: Sequence[LeafGradient]) -> None:
        self.read = [g for g in gradients if g.read]
        self.passed = [g for g in gradients if g.position is not None]
        self.replaced = [g for g in gradients if g.replaced]
        self.are_kept = not self.passed and not self.replaced
