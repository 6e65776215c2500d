"""Writes windows and copies with the ops that other passes look through: reshapes, permutations and `contiguous`.

Holders of arrays with views of their own, such as PyTorch, record each view as a window of its memory, copy where their
tensors must be in row-major order, and join lists that one op has made.
"""

from __future__ import annotations

from polyhal.hal.compile.ir.graph import Graph, Node, Operand, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter
from polyhal.hal.layout import contiguous_strides
from polyhal.hal.ops.opdef import OPS


def canonicalize_views(graph: Graph) -> Graph:
    """Replace windows that show every element once, and copies and concatenations that nobody asks memory of their own for."""
    rewriter = GraphRewriter(graph)
    for node in graph.nodes:
        order = _order(graph, node) if node.op is OPS["window"] else None
        if order is not None:
            _rearrange(rewriter, node, order)
        elif node.op is OPS["concat"] and (root := _whole(graph, node)) is not None:
            rewriter.replace(
                node, OPS["reshape"], [rewriter.operand(Value(root))], (graph.tensor(node.outputs[0]).shape,)
            )
        elif node.op is OPS["concat"] and (parts := _uncopied(rewriter, node)):
            (joined,) = rewriter.add(node.op, parts, node.params, node.origin)
            rewriter.replace(node, OPS["reshape"], [joined], (graph.tensor(node.outputs[0]).shape,))
        elif node.op is OPS["copy"] and not _leaves(graph, node.outputs[0]):
            rewriter.replace(node, OPS["contiguous"], rewriter.operands(node), ())
        else:
            rewriter.keep(node)
    return rewriter.finish()


def _order(graph: Graph, node: Node) -> tuple[int, ...] | None:
    """The axes of a window from the longest step to the shortest, if they reach every element of a tensor once."""
    base, out = graph.tensor(node.value(0)), graph.tensor(node.outputs[0])
    if not base.size or base.size != out.size or not base.is_contiguous or node.bound["offset"]:
        return None
    order = tuple(sorted(range(out.ndim), key=lambda axis: -out.strides[axis]))
    expected = contiguous_strides(tuple(out.shape[axis] for axis in order))
    return order if expected == tuple(out.strides[axis] for axis in order) else None


def _rearrange(rewriter: GraphRewriter, node: Node, order: tuple[int, ...]) -> None:
    """Write a window as the view that has its axes in `order`, permuted."""
    (source,) = rewriter.operands(node)
    shape = tuple(rewriter.old.tensor(node.outputs[0]).shape[axis] for axis in order)
    axes = tuple(order.index(axis) for axis in range(len(order)))
    if order == tuple(range(len(order))):
        rewriter.replace(node, OPS["reshape"], [source], (shape,))
        return
    if shape != rewriter.tensor(source).shape:
        (source,) = rewriter.add(OPS["reshape"], [source], (shape,), node.origin)
    rewriter.replace(node, OPS["permute"], [source], (axes,))


def _whole(graph: Graph, node: Node) -> int | None:
    """The tensor whose parts a concatenation joins again in their order; None if it is no such, or leaves the graph."""
    parts = [x.index for x in node.inputs if isinstance(x, Value)]
    out, root = graph.tensor(node.outputs[0]), graph.root(parts[0])
    if any(n != 1 for n in out.shape[: node.bound["axis"]]) or _leaves(graph, node.outputs[0]):
        return None
    end = 0
    for part in parts:
        spec = graph.tensor(part)
        if graph.root(part) != root or not spec.is_contiguous or (spec.size and graph.root_offset(part) != end):
            return None
        end += spec.size
    whole = graph.tensor(root)
    return root if end == whole.size == out.size and end and whole.is_contiguous else None


def _uncopied(rewriter: GraphRewriter, node: Node) -> list[Operand]:
    """The operands to join in place of tensors that were copied so that their last axes could be merged: these are merged
    afterwards.

    Gradients of attention's queries, keys and values are joined in this way. Empty if the operands are something else.
    """
    axis, parts, merged = node.bound["axis"], [], set()
    for x in rewriter.operands(node):
        merge = rewriter.new.made_by(x, OPS["reshape"])
        copied = None if merge is None else rewriter.new.made_by(merge.inputs[0], OPS["contiguous"])
        if copied is None:
            return []
        before, after = rewriter.tensor(copied.inputs[0]), rewriter.tensor(x)
        if axis != after.ndim - 1 or before.shape[:axis] != after.shape[:axis] or before.ndim <= after.ndim:
            return []
        merged.add(before.shape[axis + 1 :])
        parts.append(copied.inputs[0])
    return parts if len(merged) == 1 else []


def _leaves(graph: Graph, value: int) -> bool:
    """Return whether a value or a view of it is a result of the graph."""
    return graph.is_live_out(value) or any(
        graph.is_view(n) and _leaves(graph, n.outputs[0]) for n in graph.users(value)
    )
