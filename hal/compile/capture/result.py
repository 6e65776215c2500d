"""The result of a capture: the graph of a step, the sources of its inputs, and the actions before each replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal.compile.capture.gradients import LeafGradient
from polyhal.hal.compile.ir.graph import CapturedConstant, Graph
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar
from polyhal.hal.layout import Spec

if TYPE_CHECKING:
    from polyhal.hal.core.memory.buffer import Buffer
    from polyhal.hal.device import Device


class StepInput(NamedTuple):
    """A graph input that is passed with each run: the tensor at `position` among the step's inputs."""

    position: int
    spec: Spec
    device: Device


InputSource = StepInput | CapturedConstant | RuntimeScalar

UNNAMED = "captured"
"""The name of captured constants that are no module's parameters or buffers."""


@dataclass(slots=True)
class CapturedGraph:
    """The graph of a step, and the data needed to run it."""

    graph: Graph
    sources: list[InputSource]
    """One for each graph input."""
    replay_actions: list[Callable[[], object]]
    """Called in order before the kernels of a replay."""
    live_outs: list[tuple[Any, int]]
    """Tensors made in the step that are still referenced outside, with the number of the graph output."""
    results: list[int]
    """The graph outputs that the step returns, in order."""
    mutated_buffers: list[Buffer] = field(default_factory=list)
    """Buffers of captured constants that the step changes."""
    gradients: list[LeafGradient] = field(default_factory=list)
    """The leaves whose gradients it reads or replaces."""
    mutated_inputs: list[int] = field(default_factory=list)
    """Positions of step inputs that it changes."""
    modes: list[tuple[Any, object]] = field(default_factory=list)
    """The modules that took part, and the mode of each: training or evaluation, and hooks."""
    first_uses: dict[int, str] = field(default_factory=dict)
    """The user's line that used a captured constant first, by graph input."""
    initial_gradients: list[tuple[Any, Any]] = field(default_factory=list)
    """Leaves, and the gradients they had before, which are restored if the capture is abandoned."""

    leaf_flags: list[tuple[Any, bool]] = field(default_factory=list)
    """Tensors that are read without being passed, and whether each requires gradients."""
    memories: list[int | None] = field(default_factory=list)
    """Number of the program's memory of each graph output: outputs of one number share memory, others do not. None for
    outputs that the program does not receive. Empty where it follows from the recorded graph."""

    check: int | None = None
    """Graph output that is True if the values that Python read are as recorded; None if it read none."""

    def write_only_gradients(self) -> frozenset[int]:
        """The graph outputs that are gradients replaced without a read of the old ones."""
        final = {id(g.final) for g in self.gradients if g.replaced and not g.read}
        return frozenset(output for tensor, output in self.live_outs if id(tensor) in final)

    def release_gradients(self) -> None:
        """Release old gradients that a run replaces without reading them, so that it can use their memory."""
        write_only = {id(g.leaf) for g in self.gradients if g.replaced and not g.read}
        for leaf, _ in self.initial_gradients:
            if id(leaf) in write_only:
                leaf.stored_grad = None
        self.initial_gradients[:] = [(x, gradient) for x, gradient in self.initial_gradients if id(x) not in write_only]

    def same_step(self, other: CapturedGraph) -> bool:
        """Return whether another capture recorded the same ops on the same memory."""
        mine, theirs = self.graph, other.graph
        return (
            mine.specs == theirs.specs
            and mine.nodes == theirs.nodes
            and mine.outputs == theirs.outputs
            and mine.updates == theirs.updates
            and len(self.sources) == len(other.sources)
            and all(same_source(a, b) for a, b in zip(self.sources, other.sources, strict=True))
            and len(self.gradients) == len(other.gradients)
            and all(a.same_as(b) for a, b in zip(self.gradients, other.gradients, strict=True))
            and self._same_flags(other)
        )

    def _same_flags(self, other: CapturedGraph) -> bool:
        """Return whether the tensors that both read require gradients in both or in neither."""
        flags = {id(x): flag for x, flag in other.leaf_flags}
        return all(flags.get(id(x), flag) is flag for x, flag in self.leaf_flags)

    def modes_match(self) -> bool:
        """Return whether the modules that took part are in the modes they were recorded in."""
        return all(module.call_mode == mode for module, mode in self.modes)


def same_source(a: InputSource, b: InputSource) -> bool:
    """Return whether two recordings take an input of the graph from the same memory, argument or number."""
    if isinstance(a, CapturedConstant) and isinstance(b, CapturedConstant):
        if a.buffer is b.buffer:
            return a.ref.offset == b.ref.offset
        return a.frozen and b.frozen and _elements(a) == _elements(b)
    if isinstance(a, StepInput) and isinstance(b, StepInput):
        return a == b
    return isinstance(a, RuntimeScalar) and isinstance(b, RuntimeScalar)


def _elements(constant: CapturedConstant) -> bytes:
    return constant.device.download(constant.ref).tobytes()
