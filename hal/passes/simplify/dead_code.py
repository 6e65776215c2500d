"""Dead-code elimination."""

from __future__ import annotations

from polyhal.hal.ir.graph import Graph
from polyhal.hal.ir.rewriter import GraphRewriter


def remove_dead_code(graph: Graph) -> Graph:
    """Keep only the nodes on which outputs and updates depend."""
    needed = set(graph.live_outs)
    live = []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            live.append(node)
            needed.update(node.reads)
    rewriter = GraphRewriter(graph)
    for node in reversed(live):
        rewriter.keep(node)
    return rewriter.finish()
