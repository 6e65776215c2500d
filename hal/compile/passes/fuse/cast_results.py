"""Results that are written in the dtype to which they are cast, where only casts read them.

In mixed precision the gradient of each weight is a product in half precision, and then cast to the dtype of the weight. Kernels
sum in float32, so the cast costs a launch, a read and a write, for one more rounding. A norm is computed in float32, and then
cast for the product that follows: its kernel rounds instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.hal.compile.ir.graph import Graph, Node
from polyhal.hal.compile.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.dtypes import DType, accumulator
from polyhal.hal.ops.opdef import OPS

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import ParamValues

_RESHAPE, _CAST = OPS["reshape"], OPS["cast"]
_PRODUCTS = (OPS["matmul"], OPS["linear_weight_grad"], OPS["conv2d_weight_grad"])
_NORMS = (OPS["layer_norm"], OPS["rms_norm"])


def cast_results(graph: Graph) -> Graph:
    """Let products and norms write the dtype to which their results are cast, where the device has a kernel for that."""
    changed: dict[int, ParamValues] = {}
    casts: set[int] = set()
    probe = GraphRewriter.probe(graph)
    for k, node in enumerate(graph.nodes):
        found = _casts_of(graph, node) if can_fuse(node) else {}
        if len(targets := set(found.values())) != 1:
            continue
        (target,) = targets
        params = tuple({**node.bound, "out_dtype": target}[name] for name in node.op.schema.params)
        if probe.has_kernel(node.op, node.inputs, params, node.place):
            changed[k] = params
            casts |= found.keys()
    if not changed:
        return graph
    rewriter = GraphRewriter(graph)
    widened: set[int] = set()
    for k, node in enumerate(graph.nodes):
        if k in changed:
            rewriter.replace(node, node.op, rewriter.operands(node), changed[k])
        elif k in casts:
            rewriter.replace_all_uses(node.outputs[0], rewriter.operand(node.inputs[0]))
            continue
        elif node.op is _RESHAPE and node.value(0) in widened:
            rewriter.replace(node, _RESHAPE, rewriter.operands(node), node.params)
        else:
            rewriter.keep(node)
            continue
        widened.update(node.outputs)
    return rewriter.finish()


def _casts_of(graph: Graph, node: Node) -> dict[int, DType]:
    """Return the positions and dtypes of the casts that are the only readers of a node's results; empty without.

    A norm may have further results, its statistics, which are not cast.
    """
    if node.op in _NORMS:
        found = [_cast_of(graph, node.outputs[0])]
        return {k: d for k, d in filter(None, found) if d.itemsize < graph.tensor(node.outputs[0]).dtype.itemsize}
    if node.op not in _PRODUCTS:
        return {}
    found = [_cast_of(graph, v) for v in node.outputs]
    half = graph.tensor(node.outputs[0]).dtype
    wide = {k: d for k, d in filter(None, found) if d is not half and d is accumulator(half)}
    return wide if len(wide) == len(found) else {}


def _cast_of(graph: Graph, value: int) -> tuple[int, DType] | None:
    """Return the position and the dtype of the cast that is the only reader of a result, behind reshapes, if any."""
    while True:
        users = graph.user_indices(value)
        if len(users) != 1 or graph.use_count(value) != 1:
            return None
        node = graph.nodes[users[0]]
        if node.op is _CAST and not node.replaces:
            target = node.bound["dtype"]
            return (users[0], target) if target.is_floating_point else None
        if node.op is not _RESHAPE:
            return None
        value = node.outputs[0]
