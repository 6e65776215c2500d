"""Joins cross entropy and its gradient, so that each row of logits is read once.

The logits of a language model are the largest matrix of its step, and the gradient needs the statistics of whole rows of
them. One op computes the loss of a row and writes the gradient while the row is in local memory or in a cache. The ops between
the two that make the incoming gradient move in front of the loss, so they must not depend on it. The scale of a mean depends
on the target only: it is computed from losses of 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.hal.compile.ir.graph import Graph, Node, Operand, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.traits import Trait

_LOSS, _GRADIENT, _BOTH = (OPS[f"cross_entropy_rows{end}"] for end in ("", "_grad", "_and_grad"))
_MEAN, _FULL = OPS["mean_loss"], OPS["full"]


def fuse_loss_gradients(graph: Graph) -> Graph:
    """Replace cross entropy and its gradient by one op, on devices that have a kernel for it."""
    probe = GraphRewriter.probe(graph)
    pairs = [
        p for k in range(len(graph.nodes)) if (p := _pair_of(graph, k)) is not None and _has_kernel(probe, graph, p)
    ]
    return _joined(graph, {p.loss: p for p in pairs}) if pairs else graph


@dataclass(frozen=True, slots=True)
class _Pair:
    """Positions of a loss, of its gradient, and of the nodes between them that make the incoming gradient."""

    loss: int
    gradient: int
    between: tuple[int, ...]

    def call(self, graph: Graph) -> tuple[list[Operand], tuple[object, ...]]:
        """Return operands, in the old graph, and parameters of the op that computes both."""
        loss, gradient = graph.nodes[self.loss], graph.nodes[self.gradient]
        return [*loss.inputs, gradient.inputs[0]], gradient.params


def _has_kernel(probe: GraphRewriter, graph: Graph, pair: _Pair) -> bool:
    inputs, params = pair.call(graph)
    return probe.has_kernel(_BOTH, inputs, params, graph.nodes[pair.loss].place)


def _pair_of(graph: Graph, k: int) -> _Pair | None:
    """Return the pair whose gradient is node `k`; None if that is another op, or the two cannot become one."""
    gradient = graph.nodes[k]
    if gradient.op is not _GRADIENT or not can_fuse(gradient) or gradient.replaces:
        return None
    incoming, logits, target, lse = gradient.inputs
    loss = graph.made_by(lse, _LOSS)
    if loss is None or loss.outputs[1] != gradient.value(3) or not loss.merges_with(gradient):
        return None
    only_reader = graph.use_count(loss.outputs[1]) == 1
    if not only_reader or loss.inputs != (logits, target) or loss.params != gradient.params[: len(loss.params)]:
        return None
    at = graph.producer_index(loss.outputs[1])
    between = _between(graph, at, incoming)
    return None if between is None else _Pair(at, k, between)


def _between(graph: Graph, loss: int, incoming: Operand) -> tuple[int, ...] | None:
    """Return the nodes behind a loss that make the incoming gradient, in order; None if one must not run before the loss."""
    rows = graph.tensor(graph.nodes[loss].outputs[0]).size
    pending = [incoming.index] if isinstance(incoming, Value) else []
    found: set[int] = set()
    seen: set[int] = set()
    while pending:
        value = pending.pop()
        k = graph.producer_index(value)
        # Not by node: the scale of a mean may move, its value may not.
        if k < loss or value in seen:
            continue
        seen.add(value)
        node = graph.nodes[k]
        moves = Trait.POINTWISE in node.op.traits or node.op.view is not None or node.op in (_FULL, _MEAN)
        if not moves or node.replaces or not node.merges_with(graph.nodes[loss]):
            return None
        if graph.tensor(value).size > rows:
            return None
        found.add(k)
        pending += [node.value(1)] if node.op is _MEAN and value == node.outputs[1] else node.reads
    return tuple(sorted(found))


def _joined(graph: Graph, pairs: dict[int, _Pair]) -> Graph:
    """Return the graph with one op in place of each pair, at the place of the loss."""
    rewriter = GraphRewriter(graph)
    done = {p.gradient for p in pairs.values()}
    for k, node in enumerate(graph.nodes):
        if k in pairs:
            for i in pairs[k].between:
                _move(rewriter, graph.nodes[i])
            done.update(i for i in pairs[k].between if graph.nodes[i].op is not _MEAN)
            inputs, params = pairs[k].call(graph)
            losses, slope = rewriter.add(_BOTH, [rewriter.operand(x) for x in inputs], params, node.origin)
            rewriter.replace_all_uses(node.outputs[0], losses)
            rewriter.replace_all_uses(graph.nodes[pairs[k].gradient].outputs[0], slope)
        elif k not in done:
            rewriter.keep(node)
    return rewriter.finish()


def _move(rewriter: GraphRewriter, node: Node) -> None:
    """Write a node in front of the loss; of a mean, only its scale."""
    if node.op is not _MEAN:
        rewriter.keep(node)
        return
    losses, target = (rewriter.old.tensor(node.value(i)) for i in range(2))
    (zero,) = rewriter.add(_FULL, [], ((), 0.0, losses.dtype), node.origin)
    (zeros,) = rewriter.add(OPS["broadcast_to"], [zero], (target.shape,), node.origin)
    _, scale = rewriter.add(_MEAN, [zeros, rewriter.operand(node.inputs[1])], node.params, node.origin)
    rewriter.replace_all_uses(node.outputs[1], scale)
