"""Dead-code elimination."""

from __future__ import annotations

from polyhal.hal.compile.ir.graph import Graph, Node
from polyhal.hal.compile.ir.rewriter import GraphRewriter
from polyhal.hal.ops.traits import Trait


def remove_dead_code(graph: Graph) -> Graph:
    """Keep only the nodes on which outputs, updates and other processes depend."""
    needed = set(graph.live_outs)
    live = []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs) or _serves_others(node):
            live.append(node)
            needed.update(node.reads)
    rewriter = GraphRewriter(graph)
    for node in reversed(live):
        rewriter.keep(node)
    return rewriter.finish()


def _serves_others(node: Node) -> bool:
    """Return whether a node is a collective that members in other processes take part in."""
    if Trait.COLLECTIVE not in node.op.traits:
        return False
    communicator = node.bound["communicator"]
    return bool(communicator.size > len(communicator.devices))
