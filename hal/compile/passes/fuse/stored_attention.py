"""A position that is rotated, stored in a key-value cache and attends to it, in one launch.

A decoder that generates stores one position per sequence and layer, and attends to the result. Both take few microseconds on a
large GPU, where a launch of its own costs as much. The joint kernel also reads the cache before its inputs are complete.
"""

from __future__ import annotations

from polyhal.hal.compile.ir.graph import Graph, Node, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.ops.opdef import OPS

_STORE, _ATTENTION, _JOINT = OPS["rotary_store"], OPS["cached_attention"], OPS["rotary_attention"]
_LENGTHS = 5
"""Position of the lengths among the operands of `rotary_store`."""


def join_stored_attention(graph: Graph) -> Graph:
    """Join the rotation and storage of a position with the attention of its queries, on devices that have a kernel for that."""
    joined: dict[int, int] = {}
    probe = GraphRewriter.probe(graph)
    for k, node in enumerate(graph.nodes):
        if node.op is _STORE and can_fuse(node) and (reader := _reader(graph, node)) is not None:
            params = (*node.params, *graph.nodes[reader].params)
            if probe.has_kernel(_JOINT, node.inputs, params, node.place):
                joined[k] = reader
    if not joined:
        return graph
    rewriter, readers = GraphRewriter(graph), frozenset(joined.values())
    for k, node in enumerate(graph.nodes):
        if k in joined:
            attention = graph.nodes[joined[k]]
            specs = [graph.specs[v] for v in (*node.outputs[:2], attention.outputs[0])]
            params = (*node.params, *attention.params)
            replaces = (*node.replaces[:2], -1) if node.replaces else ()
            results = rewriter.new.add(_JOINT, rewriter.operands(node), params, specs, node.origin, replaces)
            for old, new in zip((*node.outputs[:2], attention.outputs[0]), results, strict=True):
                rewriter.replace_all_uses(old, Value(new))
        elif k not in readers:
            rewriter.keep(node)
    return rewriter.finish()


def _reader(graph: Graph, node: Node) -> int | None:
    """Return the position of the attention that is the only reader of the rotated queries and reads the cache; None without."""
    keys, values, queries = node.outputs
    users = graph.user_indices(queries)
    if len(users) != 1 or graph.use_count(queries) != 1 or graph.tensor(queries).shape[2] != 1:
        return None
    reader = graph.nodes[users[0]]
    operands = (Value(queries), Value(keys), Value(values), node.inputs[_LENGTHS])
    fits = reader.op is _ATTENTION and reader.inputs == operands and reader.merges_with(node) and not reader.replaces
    return users[0] if fits else None
