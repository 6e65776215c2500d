"""What a capture finds: the graph of a step, where its inputs come from, and what Python does at each of its runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal.capture.gradients import LeafGradient
from polyhal.hal.capture.runtime_scalars import RuntimeScalar
from polyhal.hal.ir.graph import Graph
from polyhal.hal.layout import Ref, Spec

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.memory.buffer import Buffer


class FakeHandle:
    """Stands where a handle would be in tensors of a step that is being captured."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "no memory yet"


FAKE_HANDLE = FakeHandle()


class FakeBuffer:
    """The buffer of a tensor that has no memory yet. Like a `Buffer` for the tape: it has a version."""

    __slots__ = ("__weakref__", "handle", "nbytes", "version")

    def __init__(self, nbytes: int) -> None:
        self.handle = FAKE_HANDLE
        self.nbytes = nbytes
        self.version = 0


class StepInput(NamedTuple):
    """An input of the graph that is passed with each run: the tensor at `position` among the arguments."""

    position: int
    spec: Spec
    device: Device


class CapturedConstant(NamedTuple):
    """An input of the graph that stays where it is: parameters, state, constants."""

    buffer: Buffer
    ref: Ref
    device: Device


InputSource = StepInput | CapturedConstant | RuntimeScalar


@dataclass(slots=True)
class CapturedGraph:
    """What a capture found: the graph, where its inputs come from, and what Python does at each run."""

    graph: Graph
    sources: list[InputSource]
    """One for each input of the graph."""
    replay_actions: list[Callable[[], object]]
    """Actions and refreshed numbers, in order, before the kernels of a run."""
    live_outs: list[tuple[Any, int]]
    """Tensors made in the step that something outside still refers to, with the number of the graph's output."""
    results: list[int]
    """The graph's outputs that the step returned, in order."""
    written: list[Buffer] = field(default_factory=list)
    """Buffers whose contents the step changes."""
    gradients: list[LeafGradient] = field(default_factory=list)
    """The leaves whose gradients it reads or sets."""
    mutated_inputs: list[int] = field(default_factory=list)
    """Positions of the arguments whose contents it changes."""
    modes: list[tuple[Any, bool]] = field(default_factory=list)
    """The modules that took part, and whether each was in training."""
    lines: dict[int, str] = field(default_factory=dict)
    """Where the user's program looked first at an input that is no parameter and no argument."""
    before: list[tuple[Any, Any]] = field(default_factory=list)
    """Leaves, and the gradients that they had before; the capture puts them back if it is abandoned."""

    def write_only_gradients(self) -> frozenset[int]:
        """The outputs that are gradients which a run replaces without a look at the old ones."""
        made = {id(g.after) for g in self.gradients if g.replaced and not g.read}
        return frozenset(output for tensor, output in self.live_outs if id(tensor) in made)

    def release_gradients(self) -> None:
        """Drop the gradients that a run replaces without a look at them, so that their memory is free for it."""
        write_only_gradients = {id(g.leaf) for g in self.gradients if g.replaced and not g.read}
        for leaf, _ in self.before:
            if id(leaf) in write_only_gradients:
                leaf.stored_grad = None
        self.before[:] = [(leaf, gradient) for leaf, gradient in self.before if id(leaf) not in write_only_gradients]

    def same_step(self, other: CapturedGraph) -> bool:
        """Whether another capture recorded the same ops on the same memory."""
        mine, theirs = self.graph, other.graph
        return (
            mine.specs == theirs.specs
            and mine.nodes == theirs.nodes
            and mine.outputs == theirs.outputs
            and mine.updates == theirs.updates
            and len(self.sources) == len(other.sources)
            and all(_same_source(a, b) for a, b in zip(self.sources, other.sources, strict=True))
            and len(self.gradients) == len(other.gradients)
            and all(a.same(b) for a, b in zip(self.gradients, other.gradients, strict=True))
        )

    def rebound_constants(self, other: CapturedGraph) -> list[int]:
        """The inputs for which another capture of the same ops found other memory; none if the ops differ."""
        mine, theirs = self.graph, other.graph
        if mine.specs != theirs.specs or mine.nodes != theirs.nodes or len(self.sources) != len(other.sources):
            return []
        pairs = enumerate(zip(self.sources, other.sources, strict=True))
        return [
            i
            for i, (a, b) in pairs
            if isinstance(a, CapturedConstant) and isinstance(b, CapturedConstant) and not _same_source(a, b)
        ]

    def modes_match(self) -> bool:
        """Whether the modules that took part are in the modes that they were in."""
        return all(module.training is mode for module, mode in self.modes)


def _same_source(a: InputSource, b: InputSource) -> bool:
    if isinstance(a, CapturedConstant) and isinstance(b, CapturedConstant):
        return a.buffer is b.buffer and a.ref.offset == b.ref.offset
    if isinstance(a, StepInput) and isinstance(b, StepInput):
        return a == b
    return isinstance(a, RuntimeScalar) and isinstance(b, RuntimeScalar)


__all__ = [
    "FAKE_HANDLE",
    "CapturedConstant",
    "CapturedGraph",
    "FakeBuffer",
    "InputSource",
    "StepInput",
]
