"""Nodes whose results nobody reads are left out."""

from __future__ import annotations

from polyhal.hal.ir.graph import Graph
from polyhal.hal.ir.rewriter import Rewriting
from polyhal.hal.ops.opdef import Value


def remove_dead_code(graph: Graph) -> Graph:
    """Keep the nodes that outputs and updates depend on."""
    needed = {*graph.outputs, *graph.updates.values()}
    kept = []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            kept.append(node)
            needed.update(x.index for x in node.inputs if isinstance(x, Value))
    rewriting = Rewriting(graph)
    for node in reversed(kept):
        rewriting.keep(node)
    return rewriting.finish()
