"""Products of half precision that write float32 themselves where only a cast reads their result.

In mixed precision the gradient of each weight is a product in half precision, and then cast to the dtype of the weight. Kernels
sum in float32, so the cast costs a launch, a read and a write, for one more rounding.
"""

from __future__ import annotations

from polyhal.hal.compile.ir.graph import Graph
from polyhal.hal.compile.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.dtypes import DType, accumulator
from polyhal.hal.ops.opdef import OPS

_RESHAPE, _CAST, _MATMUL = OPS["reshape"], OPS["cast"], OPS["matmul"]


def widen_results(graph: Graph) -> Graph:
    """Let products write the dtype to which their results are cast, where the device has a kernel for that."""
    wide: dict[int, DType] = {}
    casts: set[int] = set()
    probe = GraphRewriter.probe(graph)
    for k, node in enumerate(graph.nodes):
        found = _cast_of(graph, node.outputs[0]) if node.op is _MATMUL and can_fuse(node) else None
        if found is not None and probe.has_kernel(_MATMUL, node.inputs, (found[1],), node.place):
            wide[k] = found[1]
            casts.add(found[0])
    if not wide:
        return graph
    rewriter = GraphRewriter(graph)
    widened: set[int] = set()
    for k, node in enumerate(graph.nodes):
        if k in wide:
            rewriter.replace(node, _MATMUL, rewriter.operands(node), (wide[k],))
        elif k in casts:
            rewriter.replace_all_uses(node.outputs[0], rewriter.operand(node.inputs[0]))
            continue
        elif node.op is _RESHAPE and node.value(0) in widened:
            rewriter.replace(node, _RESHAPE, rewriter.operands(node), node.params)
        else:
            rewriter.keep(node)
            continue
        widened.add(node.outputs[0])
    return rewriter.finish()


def _cast_of(graph: Graph, value: int) -> tuple[int, DType] | None:
    """Return the position and the dtype of the cast that is the only reader of a result, behind reshapes, if any."""
    half = graph.tensor(value).dtype
    while True:
        users = graph.user_indices(value)
        if len(users) != 1 or graph.use_count(value) != 1:
            return None
        node = graph.nodes[users[0]]
        if node.op is _CAST and not node.replaces:
            target = node.bound["dtype"]
            return (users[0], target) if target is not half and target is accumulator(half) else None
        if node.op is not _RESHAPE:
            return None
        value = node.outputs[0]
