"""A recorded step: its graph, and the executable that runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyhal.hal import dispatch
from polyhal.hal.capture.gradients import LeafGradient
from polyhal.hal.capture.result import CapturedGraph
from polyhal.hal.diagnostics.explain_graph import explain
from polyhal.hal.ir.graph import Graph
from polyhal.hal.scheduler.executable import Executable
from polyhal.hal.scheduler.profile import StepProfile
from polyhal.hal.scheduler.report import MemoryReport
from polyhal.steps.backward import Backward
from polyhal.steps.results import filled
from polyhal.tensor import Tensor, wrap


class CapturedStep:
    """A recorded step: its graph, and the executable that runs it."""

    def __init__(
        self,
        captured: CapturedGraph,
        results: Any = None,
        arguments: Sequence[Tensor] = (),
        backward: Backward | None = None,
        budget: int | None = None,
    ) -> None:
        """`results` is the pattern of what it returns; `arguments` are the tensors that it was recorded with.

        `budget`, in bytes, is what the step may need at most on each device. Raises OutOfMemoryError if it needs more.
        """
        self.captured = captured
        self.results = results
        self._backward = backward
        self._modes = -1
        self.version = dispatch.structure.version
        """Of the structure that it was recorded for."""
        self.confirmed = False
        """Whether a second capture recorded the same."""
        self._leaves = {id(x): i for i, x in enumerate(arguments)}
        """Positions of tensors whose own gradients the step may read or set."""
        self._gradients = _Gradients(captured.gradients)
        self.executable = Executable(captured, budget)

    @property
    def graph(self) -> Graph:
        """What was recorded, before it was optimised."""
        return self.captured.graph

    def fits(self, tensors: Sequence[Tensor]) -> bool:
        """Whether structure, modes of modules and gradients are as they were when the step was recorded."""
        if self.version != dispatch.structure.version:
            return False
        if self._modes != dispatch.structure.modes:
            if not self.captured.modes_match():
                return False
            self._modes = dispatch.structure.modes
        read = self._gradients.read
        return not read or all(g.matches(self._leaf(g.leaf, tensors)) for g in read)

    def run(self, tensors: Sequence[Tensor] = ()) -> Any:
        """Run once on tensors for the step's arguments, and return what the step returned, computed anew."""
        gradients, leaf = self._gradients, self._leaf
        given: list[Any] = [*tensors, *[leaf(g.leaf, tensors).stored_grad for g in gradients.passed]]
        replaced = [(leaf(g.leaf, tensors), g.final) for g in gradients.replaced]
        outputs = self.executable.run(given, len(self.captured.results))
        for position in self.captured.mutated_inputs:
            given[position].buffer.version += 1
        made = [wrap(device, buffer, ref) for device, buffer, ref in outputs]
        for x, after in replaced:
            x.stored_grad = after
        if self._backward is not None:
            self._backward.attach(made, tensors)
        return filled(self.results, made)

    def explain(self) -> str:
        """What each pass made of the recorded graph, and how each op runs and why."""
        return explain(self.executable)

    def memory_report(self) -> MemoryReport:
        """What memory the step needs, by kind, and its largest tensors."""
        return self.executable.memory_report()

    @staticmethod
    def profile() -> StepProfile:
        """Device times by node of the captured steps that run inside: `with step.profile() as p: step(...)`, `print(p)`."""
        return StepProfile()

    def replay(self) -> None:
        """Run a step without arguments once more. Tensors made in it hold the new values afterwards."""
        self.run()

    def stands_for(self, captured: CapturedGraph) -> None:
        """Act for a later capture of the same step: with the tensors that this one left behind."""
        captured.release_gradients()
        self.captured.live_outs = captured.live_outs
        self.captured.gradients = captured.gradients
        self._gradients = _Gradients(captured.gradients)

    def _leaf(self, leaf: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        place = self._leaves.get(id(leaf))
        return leaf if place is None or place >= len(tensors) else tensors[place]


class _Gradients:
    """Those of a step by what is done with them, as most are only replaced."""

    __slots__ = ("passed", "read", "replaced")

    def __init__(self, gradients: Sequence[LeafGradient]) -> None:
        self.read = [g for g in gradients if g.read]
        self.passed = [g for g in gradients if g.position is not None]
        self.replaced = [g for g in gradients if g.replaced]


__all__ = ["CapturedStep"]
