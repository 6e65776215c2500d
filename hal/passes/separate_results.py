"""Results that were recorded as memory of their own stay so, although passes found that they are equal.

A program may write to one of them later, which must not change the other. Within the graph, values never change.
"""

from __future__ import annotations

from polyhal.hal.ir.graph import Graph, Value
from polyhal.hal.ir.rewriter import GraphRewriter
from polyhal.hal.ops.opdef import OPS


def separate_results(graph: Graph, recorded: Graph) -> Graph:
    """Copy outputs of `graph` that lie in the memory of others from which they were separate in the `recorded` graph."""
    owners: dict[int, int] = {}
    shared = [
        (i, v)
        for i, (v, before) in enumerate(zip(graph.outputs, recorded.outputs, strict=True))
        if owners.setdefault(graph.root(v), recorded.root(before)) != recorded.root(before)
    ]
    # A result in the memory of an input is copied at the end of a run anyway.
    shared = [(i, v) for i, v in shared if graph.producer(graph.root(v)) is not None]
    if not shared:
        return graph
    rewriter = GraphRewriter(graph)
    for node in graph.nodes:
        rewriter.keep(node)
    outputs = list(graph.outputs)
    copies: dict[tuple[int, int], int] = {}
    for i, v in shared:
        group = v, recorded.root(recorded.outputs[i])
        if group not in copies:
            producer = graph.producer(v)
            assert producer is not None
            (copied,) = rewriter.add(OPS["copy"], (rewriter.operand(Value(v)),), (), producer.origin)
            copies[group] = copied.index
        outputs[i] = copies[group]
    separated = rewriter.finish()
    separated.outputs = tuple(outputs)
    return separated
