"""Variances of batch norm that programs compute from the inverse standard deviation.

PyTorch's autograd saves `rsqrt(var + eps)` for the backward pass, from which the variance is `1 / rsqrt(var + eps)**2 - eps`,
up to rounding. With the variance itself, the gradient is the pattern of batch norm and its activation, and no launch computes
either.
"""

from __future__ import annotations

from polyhal.hal.compile.ir.graph import Graph, Node, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.ops.opdef import OPS

_VARIANCE = 2
"""Position of the variance, which is not negative, among the results of batch norm."""


def restore_variances(graph: Graph) -> Graph:
    """Replace variances that are computed from inverse standard deviations by the ones that these were computed from."""
    found = {k: variance for k, node in enumerate(graph.nodes) if (variance := _source(graph, node)) is not None}
    if not found:
        return graph
    rewriter = GraphRewriter(graph)
    for k, node in enumerate(graph.nodes):
        if k in found:
            rewriter.replace_all_uses(node.outputs[0], rewriter.operand(found[k]))
        else:
            rewriter.keep(node)
    return rewriter.finish()


def _source(graph: Graph, node: Node) -> Value | None:
    """Return the variance that a node computes from its inverse standard deviation; None for other nodes."""
    if node.op is not OPS["subtract"] or node.replaces or not can_fuse(node):
        return None
    quotient, eps = node.inputs
    divide = graph.made_by(quotient, OPS["divide"])
    square = None if divide is None or divide.inputs[0] != 1 else graph.made_by(divide.inputs[1], OPS["square"])
    rsqrt = None if square is None else graph.made_by(square.inputs[0], OPS["rsqrt"])
    add = None if rsqrt is None else graph.made_by(rsqrt.inputs[0], OPS["add"])
    if add is None or isinstance(eps, Value) or add.inputs[1] != eps:
        return None
    norm = graph.made_by(add.inputs[0], OPS["batch_norm"])
    variance = add.inputs[0]
    if norm is None or not isinstance(variance, Value) or norm.outputs[_VARIANCE] != variance.index:
        return None
    return variance if graph.specs[variance.index] == graph.specs[node.outputs[0]] else None
