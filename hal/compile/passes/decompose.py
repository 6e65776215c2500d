"""Decomposition: ops for which the device has neither a kernel nor a core method are replaced by the ops they consist of.

So are ops over lists of tensors if a neighbor of each tensor can absorb its part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from polyhal.hal.compile.ir.graph import Graph, Node
from polyhal.hal.compile.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.compile.ir.trace import trace
from polyhal.hal.compile.planning.decompose import decomposition
from polyhal.hal.core.dispatch.bounds import is_debug
from polyhal.hal.core.settings.state import settings
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.traits import Trait


def decompose(graph: Graph) -> Graph:
    """Replace composed ops by their parts until every op is one that its device runs as a whole, and that fuses as one."""
    answers: dict[Any, bool] = {}
    while any(composed := [_is_composed(graph, node, answers) or _is_absorbed(graph, node) for node in graph.nodes]):
        rewriter = GraphRewriter(graph)
        for node, expand in zip(graph.nodes, composed, strict=True):
            if expand:
                inline_decomposition(rewriter, node)
            else:
                rewriter.keep(node)
        graph = rewriter.finish()
    return graph


def inline_decomposition(rewriter: GraphRewriter, node: Node) -> None:
    """Add the ops of a node's decomposition in place of the node."""
    graph = rewriter.old
    specs = tuple(graph.spec_of(x) for x in node.inputs)
    parts = trace(decomposition(node.op, graph.output_specs(node)), specs, node.bound, node.device.stand_ins)
    place = node.place
    origin = place._replace(location=place.location.within(node.op.name))
    for v, operand in zip(node.outputs, rewriter.inline(parts, rewriter.operands(node), origin), strict=True):
        # The nodes that follow, above all views, were recorded for the layout of the op's own result.
        if rewriter.new.spec_of(operand) != graph.specs[v]:
            (operand,) = rewriter.add(OPS["contiguous"], [operand], (), origin)
        rewriter.replace_all_uses(v, operand)


def _is_absorbed(graph: Graph, node: Node) -> bool:
    """Return whether each part of an op over a list has a neighbor with which it can be fused."""
    return (
        Trait.POINTWISE_ON_EACH in node.op.traits
        and can_fuse(node)
        and all(
            any(Trait.POINTWISE in n.op.traits and n.merges_with(node) for n in _neighbors(graph, node, i))
            for i in range(len(node.outputs))
        )
    )


def _neighbors(graph: Graph, node: Node, i: int) -> Iterator[Node]:
    """Yield the producer of input `i` and the users of output `i`."""
    made = graph.producer(node.value(i))
    if made is not None:
        yield made
    yield from graph.users(node.outputs[i])


def _is_composed(graph: Graph, node: Node, answers: dict[Any, bool]) -> bool:
    """Return whether a node runs as the ops of its decomposition. `answers` holds those given before: layers repeat."""
    if node.op.decompose is None or graph.is_view(node):
        return False
    if node.op.index_range is not None and is_debug():
        return False  # its parts do not say which indices are in range
    signature, place = graph.signature(node), node.place
    key = (signature, place.device, place.settings)
    if key not in answers:
        with settings.restored(place.settings):
            resolution = place.device.planner.resolution(node.op, signature.inputs, signature.outputs, node.bound)
        answers[key] = resolution.is_composed
    return answers[key]
