"""Ops for which the device has neither a kernel nor a core method become the ops that they are made of."""

from __future__ import annotations

from polyhal.hal.ir.graph import Graph, Node, trace
from polyhal.hal.ir.rewriter import Rewriting
from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.planning.decompose import decomposition
from polyhal.hal.planning.resolution import Step
from polyhal.hal.settings.state import settings


def decompose(graph: Graph) -> Graph:
    """Replace composed ops by their parts, until every op is one that its device runs as a whole."""
    while True:
        rewriting = Rewriting(graph)
        found = False
        for node in graph.nodes:
            if node.op.decompose is None or not _is_composed(graph, node):
                rewriting.keep(node)
                continue
            found = True
            outputs = tuple(graph.specs[v] for v in node.outputs)
            parts = trace(
                decomposition(node.op, outputs),  # type: ignore[arg-type]
                tuple(graph.spec_of(x) for x in node.inputs),
                node.op.bind(node.params),
            )
            made = rewriting.inline(parts, rewriting.operands(node), node.origin)
            for v, operand in zip(node.outputs, made, strict=True):
                # What follows was recorded for the layout of the node's own result, views above all.
                if rewriting.new.spec_of(operand) != graph.specs[v]:
                    (operand,) = rewriting.add(OPS["contiguous"], [operand], (), node.origin)
                rewriting.equate(v, operand)
        if not found:
            return graph
        graph = rewriting.finish()


def _is_composed(graph: Graph, node: Node) -> bool:
    if graph.view_offset(node) is not None:
        return False
    assert node.origin is not None
    inputs = tuple(graph.spec_of(x) for x in node.inputs)
    outputs = tuple(graph.specs[v] for v in node.outputs)
    assert all(isinstance(s, Spec) for s in outputs)
    with settings.restored(node.origin.settings):
        bound = node.op.bind(node.params)
        _, _, note = node.origin.device.planner.resolve(node.op, inputs, outputs, bound)  # type: ignore[arg-type]
    return note.step is Step.COMPOSED
