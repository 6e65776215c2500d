"""The content of a picture of a graph: one box per input and node, with kernel, time and notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from polyhal.hal.compile.ir.graph import Graph, Node, Value
from polyhal.hal.compile.ir.text import node_text, spec_text
from polyhal.hal.layout import Spec
from polyhal.hal.system.diagnostics.explain_graph import parts_of

if TYPE_CHECKING:
    from polyhal.hal.compile.scheduler.executable import Executable
    from polyhal.hal.compile.scheduler.profile import StepProfile

INPUT = "input"
"""Family of inputs."""
COLOURS = {
    INPUT: "#d9d9d9", "elementwise": "#a6d8a8", "fused": "#6fbf73", "movement": "#e8e2d0", "creation": "#e8e2d0",
    "contraction": "#8fb8e8", "convolution": "#8fb8e8", "attention": "#b7a3e3", "reduction": "#f2c879", "norm": "#f2a979",
    "loss": "#f28f8f", "optimizer": "#e3a3cf", "random": "#9fdcd8", "indexing": "#cfd38a",
}  # fmt: skip
"""Colours by op family."""
OTHER = "#c9c9d9"


@dataclass(slots=True)
class Box:
    """An input or a node. `reads` are the numbers of the boxes that produce its operands."""

    number: int
    title: str
    family: str
    module: str = ""
    specs: str = ""
    """Dtypes and shapes of the outputs."""
    nbytes: int = 0
    """Bytes of the outputs; 0 for views."""
    reads: list[int] = field(default_factory=list)
    text: str = ""
    """Line in the text of the graph."""
    kernel: str = ""
    nanoseconds: int | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def colour(self) -> str:
        """Return the fill colour of the family in SVG notation."""
        return COLOURS.get(self.family, OTHER)


def boxes(graph: Graph, executable: Executable | None = None, profile: StepProfile | None = None) -> list[Box]:
    """Return boxes for the inputs, then for the nodes in order.

    `executable` runs the graph and adds kernels, with the reasons for them; `profile` adds times.
    """
    drawn = [_input(graph, i) for i in range(graph.inputs)]
    producers = {i: i for i in range(graph.inputs)}
    calls = {} if executable is None else {id(c.node): c for c in executable.calls if c is not None}
    for node in graph.nodes:
        box = _node(graph, node, len(drawn), producers)
        call = calls.get(id(node))
        if call is not None:
            box.kernel = call.resolution.how
            box.notes += [line.strip() for line in call.resolution.lines()[1:]]
        elif executable is not None:
            box.kernel = "view: no kernel"
        if profile is not None:
            box.nanoseconds = profile.time_of(node)
        producers.update(dict.fromkeys(node.outputs, box.number))
        drawn.append(box)
    for value in graph.outputs:
        drawn[producers[value]].notes.append(f"%{value} is a result")
    for i, value in graph.updates.items():
        drawn[producers[value]].notes.append(f"%{value} replaces {graph.names.get(i) or f'%{i}'}")
    return drawn


def _input(graph: Graph, i: int) -> Box:
    spec = graph.specs[i]
    name = graph.names.get(i, "")
    title = name or f"%{i}"
    nbytes = spec.nbytes if isinstance(spec, Spec) else 0
    return Box(i, title, INPUT, "", spec_text(spec), nbytes, [], f"%{i}: {spec_text(spec)}")


def _node(graph: Graph, node: Node, number: int, producers: Mapping[int, int]) -> Box:
    specs = [graph.specs[v] for v in node.outputs]
    view = graph.view_offset(node) is not None
    reads = [producers[x.index] for x in node.inputs if isinstance(x, Value)]
    parts = parts_of(node)
    return Box(
        number,
        node.op.name,
        node.op.family,
        node.origin.module if node.origin is not None else "",
        ", ".join(map(spec_text, specs)),
        0 if view else sum(s.nbytes for s in specs if isinstance(s, Spec)),
        list(dict.fromkeys(reads)),
        node_text(graph, node),
        notes=[f"fuses {', '.join(parts)}"] if parts else [],
    )
