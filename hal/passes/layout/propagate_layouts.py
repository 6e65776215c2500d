"""Results are laid out as their readers want them, by devices whose kernels can write them so, which saves copies.

Attention makes (batch, head, time, feature), and what follows wants (batch, time, head, feature) without gaps: laid out like
that, the result is what the copy would be. Likewise the pieces of a concatenation are laid out as parts of its result; they
are made there then (see `hal.scheduler.storage`).
"""

from __future__ import annotations

from polyhal.hal import layout
from polyhal.hal.ir.graph import Graph, Node
from polyhal.hal.ir.rewriter import Rewriting
from polyhal.hal.layout import Spec, contiguous, contiguous_strides, place
from polyhal.hal.ops.opdef import Value

_FOLLOWED = frozenset({"permute", "reshape", "slice", "contiguous"})
"""Ops that see the elements of a result, and not its place in memory."""


def place_results(graph: Graph) -> Graph:
    """Give results the layout of the copies that would be made of them, where that leaves all other views what they are."""
    wishes = _Wishes(graph).found
    if not wishes:
        return graph
    rewriting = Rewriting(graph)
    for node in graph.nodes:
        specs = [wishes.get(v, graph.specs[v]) for v in node.outputs]
        inputs = rewriting.operands(node)
        if any(v in wishes for v in node.outputs) and rewriting.can_place(node, inputs, specs):
            rewriting.put(node, specs)
        elif graph.view_offset(node) is not None or node.op.name == "contiguous":
            (made,) = rewriting.add(node.op, inputs, node.params, node.origin)
            rewriting.equate(node.outputs[0], made)
        else:
            rewriting.keep(node)
    return rewriting.finish()


class _Wishes:
    """The layouts that are wanted of results, by value."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._maker = {v: n for n in graph.nodes for v in n.outputs}
        self._kept = {*graph.outputs, *graph.updates.values()}
        self._readers: dict[int, list[Node]] = {}
        for node in graph.nodes:
            for x in dict.fromkeys(x.index for x in node.inputs if isinstance(x, Value)):
                self._readers.setdefault(x, []).append(node)
        self.found: dict[int, Spec] = {}
        for node in graph.nodes:
            self._ask(node)

    def _ask(self, node: Node) -> None:
        """Note what a copy or a concatenation wants of all its operands, if all can be had."""
        wanted: dict[int, Spec] = {}
        for x, spec in self._copied(node):
            found = self._traced(x, spec)
            if found is None or found[0] in self.found or found[0] in wanted or not self._admits(*found):
                return
            wanted[found[0]] = found[1]
        self.found |= wanted

    def _copied(self, node: Node) -> list[tuple[int, Spec]]:
        """The operands that a node only copies, and how they lie in its result."""
        out = self._graph.specs[node.outputs[0]]
        assert isinstance(out, Spec)
        if node.op.name not in ("contiguous", "concat") or self._graph.view_offset(node) is not None or node.replaces:
            return []
        if node.op.name == "contiguous":
            (x,) = node.inputs
            return [(x.index, contiguous(out.dtype, out.shape))] if isinstance(x, Value) else []
        if any(not isinstance(x, Value) or self._graph.specs[x.index].dtype is not out.dtype for x in node.inputs):  # type: ignore[union-attr]
            return []
        assert node.op.assemble is not None
        specs = tuple(self._graph.spec_of(x) for x in node.inputs)
        pieces = node.op.assemble(specs, (out,), node.op.bind(node.params))
        return [(node.inputs[p.source].index, place(out, p.target)) for p in pieces if p.source is not None]  # type: ignore[union-attr]

    def _traced(self, value: int, wanted: Spec) -> tuple[int, Spec] | None:
        """The result that a value is a view of, and the layout of it that lays out the value as wanted."""
        node = self._maker.get(value)
        if node is None:
            return None
        if _places(node):
            return value, wanted
        source = node.inputs[0] if node.inputs else None
        if not isinstance(source, Value) or self._graph.view_offset(node) is None:
            return None
        before = self._graph.specs[source.index]
        assert isinstance(before, Spec)
        if node.op.name == "permute":
            strides = dict(zip(node.op.bind(node.params)["axes"], wanted.strides, strict=True))
            return self._traced(source.index, wanted._replace(shape=before.shape, strides=_ordered(strides)))
        view = layout.reshape(wanted, before.shape) if node.op.name == "reshape" else None
        return None if view is None else self._traced(source.index, place(wanted, view))

    def _admits(self, value: int, wanted: Spec) -> bool:
        """Whether a result may be laid out as wanted: nobody depends on how it lies now."""
        spec = self._graph.specs[value]
        assert isinstance(spec, Spec)
        rows = spec.ndim >= 2 and spec.strides == contiguous_strides(spec.shape) and wanted.strides[-1] == 1
        return rows and not self._maker[value].replaces and self._keeps_views(value, wanted)

    def _keeps_views(self, value: int, spec: Spec) -> bool:
        """Whether the views of a value stay views when it lies as `spec` says, and all other readers take it as it lies."""
        if value in self._kept:
            return False
        for node in self._readers.get(value, ()):
            if node.op.name == "concat" or (_places(node) and not node.replaces):
                continue
            if node.op.name not in _FOLLOWED or node.op.view is None:
                return False
            view = node.op.view(spec, node.op.bind(node.params))
            if view is None and self._graph.view_offset(node) is not None:
                return False
            if view is None:
                continue
            (out,) = node.outputs
            now = place(spec, view)
            if now != self._graph.specs[out] and not self._keeps_views(out, now):
                return False
        return True


def _places(node: Node) -> bool:
    """Whether the device's kernels for an op find and put tensors wherever these lie."""
    return node.origin is not None and node.op.name in node.origin.device.capabilities.strided_ops


def _ordered(strides: dict[int, int]) -> tuple[int, ...]:
    return tuple(strides[axis] for axis in sorted(strides))
