"""Removes views that change nothing, and composes chains of views of one kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from polyhal.hal.compile.ir.graph import Graph, Node, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter

Parameters = tuple[Any, ...]


def simplify_views(graph: Graph) -> Graph:
    """Replace views by their operand where the layouts agree, and chains of reshapes, permutations or broadcasts by one."""
    rewriter = GraphRewriter(graph)
    views: dict[int, _View] = {}
    for node in graph.nodes:
        source = graph.viewed(node)
        if source is None:
            rewriter.keep(node)
            continue
        (out,) = node.outputs
        view = views[out] = _composed(graph, node, source, views)
        same = graph.specs[view.base] == graph.specs[out]
        base = rewriter.operand(Value(view.base))
        if same and (view.params is not None or graph.view_offset(node) == 0):
            rewriter.replace_all_uses(out, base)
        elif view.params is None or view.base == source:
            rewriter.keep(node)
        else:
            rewriter.replace(node, node.op, [base], view.params)
    return rewriter.finish()


class _View(NamedTuple):
    """A value as a view of `base` by `op` with `params`, which are None for ops that do not compose."""

    base: int
    op: str
    params: Parameters | None


def _composed(graph: Graph, node: Node, source: int, views: dict[int, _View]) -> _View:
    """A view, composed with the views of the same kind before it."""
    name = node.op.name
    compose = _COMPOSE.get(name)
    before = views.get(source)
    if compose is None:
        return _View(source, name, None)
    if before is None or before.op != name or before.params is None:
        return _View(source, name, node.params)
    if name == "reshape" and not graph.tensor(before.base).is_contiguous:
        return _View(source, name, node.params)
    return _View(before.base, name, compose(before.params, node.params))


def _last(first: Parameters, second: Parameters) -> Parameters:
    return second


def _permutation(first: Parameters, second: Parameters) -> Parameters:
    return (tuple(first[0][axis] for axis in second[0]),)


_COMPOSE: dict[str, Callable[[Parameters, Parameters], Parameters]] = {
    "reshape": _last,
    "broadcast_to": _last,
    "permute": _permutation,
}
"""Parameters of the one view that equals two of its kind, the first applied first."""
