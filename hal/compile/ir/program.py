"""The node of a program that a backend compiles from a part of a captured step (see `hal.graphs`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from polyhal.hal.graphs import GraphNode, GraphProgram, GraphValue
from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.schema import REQUIRED, Output, Schema, Specs
from polyhal.hal.ops.traits import Trait


@dataclass(frozen=True, slots=True, eq=False)
class ProgramPart:
    """The part of a step that one program computes; the operands and results of its node are `inputs` and `outputs`."""

    inputs: tuple[GraphValue, ...]
    nodes: tuple[GraphNode, ...]
    outputs: tuple[GraphValue, ...]

    def graph(self, aliases: Sequence[int], captured: frozenset[int]) -> GraphProgram:
        """Return the graph to compile; `aliases` has the operand that each output overwrites, or -1."""
        donated = tuple(a if a >= 0 else None for a in aliases)
        return GraphProgram(self.inputs, self.nodes, self.outputs, donated, captured)

    def __repr__(self) -> str:
        counts = Counter(node.op for node in self.nodes)
        ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
        return f"<{len(self.nodes)} ops: {', '.join(f'{n} {op}' for op, n in ordered)}>"


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    outputs = [v.spec for v in params["part"].outputs]
    return [(spec.dtype, spec.shape) for spec in outputs if isinstance(spec, Spec)]


def _reference(*xs: Any, part: ProgramPart) -> NoReturn:
    raise NotImplementedError("a program is compiled by its backend; only captured steps contain programs")


PROGRAM = OpDef(
    name="program",
    family="transfer",
    doc="Run a program that the backend compiled from a part of the step.",
    schema=Schema(("xs",), variadic=True, params={"part": REQUIRED}, variadic_outputs=True),
    infer=_infer,
    reference=_reference,
    # Never folded, and never run a second time to save memory.
    traits=Trait.VARYING | Trait.NONDETERMINISTIC,
    public=False,
)
