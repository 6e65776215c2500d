"""Views that change nothing are left out, and views of views of the same kind become one."""

from __future__ import annotations

from typing import Any, NamedTuple

from polyhal.hal.ir.graph import Graph, Node
from polyhal.hal.ir.rewriter import Rewriting
from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import Value


def simplify_views(graph: Graph) -> Graph:
    """Equate views with what they view where the layouts agree; chains of reshapes, permutations and broadcasts become one."""
    rewriting = Rewriting(graph)
    views: dict[int, _View] = {}
    for node in graph.nodes:
        source = node.inputs[0] if node.inputs else None
        if not isinstance(source, Value) or graph.view_offset(node) is None:
            rewriting.keep(node)
            continue
        (out,) = node.outputs
        view = _whole(graph, node, source, views)
        views[out] = view
        old, new = graph.specs[view.base.index], graph.specs[out]
        if old == new and (view.params is not None or graph.view_offset(node) == 0):
            rewriting.equate(out, rewriting.operand(view.base))
        elif view.params is None or view.base is source:
            rewriting.keep(node)
        else:
            (slot,) = rewriting.add(node.op, [rewriting.operand(view.base)], view.params, node.origin)
            rewriting.equate(out, slot)
    return rewriting.finish()


class _View(NamedTuple):
    """A value as a view of `base`, by one op with `params`; None where those are only the last of several ops'."""

    base: Value
    op: str
    params: tuple[Any, ...] | None


def _whole(graph: Graph, node: Node, source: Value, views: dict[int, _View]) -> _View:
    """A view in terms of what the views before it start from, as far as these are of its kind."""
    name = node.op.name
    before = views.get(source.index)
    if before is None or before.op != name or before.params is None:
        joined = name in _JOINED
        return _View(source, name, node.params if joined else None)
    spec = graph.specs[before.base.index]
    if name == "reshape" and not (isinstance(spec, Spec) and spec.is_contiguous):
        return _View(source, name, node.params)
    return _View(before.base, name, _JOINED[name](before.params, node.params))


def _permutation(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    return (tuple(first[0][a] for a in second[0]),)


_JOINED = {
    "reshape": lambda first, second: second,
    "broadcast_to": lambda first, second: second,
    "permute": _permutation,
}
"""The parameters of one op that does what two of its kind do one after the other."""
