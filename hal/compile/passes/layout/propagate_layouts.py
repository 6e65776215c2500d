"""Layout propagation: results are written in the layout that their users want, which saves copies.

Attention makes (batch, head, time, feature), and its users want (batch, time, head, feature) without gaps: written in that
layout, the result equals the copy. Likewise the operands of a concatenation get the strides of their region of its
result, so that they can be computed there (see `hal.compile.scheduler.buffers`). Only ops whose kernels can write any layout
take part.
"""

from __future__ import annotations

from polyhal.hal import layout
from polyhal.hal.compile.ir.graph import Graph, Node
from polyhal.hal.compile.ir.rewriter import GraphRewriter
from polyhal.hal.layout import Spec, contiguous_strides, place
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.traits import Trait


def propagate_layouts(graph: Graph) -> Graph:
    """Give results the layout of the copies that would be made of them, where all other views stay views."""
    layouts = _Demand(graph).layouts
    if not layouts:
        return graph
    rewriter = GraphRewriter(graph)
    for node in graph.nodes:
        specs = [layouts.get(v, spec) for v, spec in zip(node.outputs, graph.output_specs(node), strict=True)]
        inputs = rewriter.operands(node)
        if any(v in layouts for v in node.outputs) and rewriter.can_write(node, inputs, specs):
            rewriter.keep_with(node, specs)
        elif graph.is_view(node) or Trait.LAYOUT_TRANSPARENT in node.op.traits:
            rewriter.replace(node, node.op, inputs, node.params)
        else:
            rewriter.keep(node)
    return rewriter.finish()


class _Demand:
    """The layouts that copies and concatenations ask of results, by value."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.layouts: dict[int, Spec] = {}
        for node in graph.nodes:
            self._collect(node)

    def _collect(self, node: Node) -> None:
        """Note the layouts that a copy or concatenation requires of its operands, if all of it can be had."""
        demands: dict[int, Spec] = {}
        for value, spec in self._copied(node):
            demand = self._traced(value, spec)
            if demand is None or demand[0] in self.layouts or demand[0] in demands or not self._admits(*demand):
                return
            demands[demand[0]] = demand[1]
        self.layouts |= demands

    def _copied(self, node: Node) -> list[tuple[int, Spec]]:
        """The operands that a node only copies, and the layout of their region of its result."""
        joins = Trait.JOINS_OPERANDS in node.op.traits and node.op.regions is not None
        if not joins or node.op.regions is None or self._graph.is_view(node) or node.replaces:
            return []
        specs = tuple(self._graph.spec_of(x) for x in node.inputs)
        (out,) = self._graph.output_specs(node)
        if any(not isinstance(s, Spec) or s.dtype is not out.dtype for s in specs):
            return []
        pieces = node.op.regions(specs, (out,), node.bound)
        return [(node.value(p.source), place(out, p.target)) for p in pieces if p.source is not None]

    def _traced(self, value: int, target: Spec) -> tuple[int, Spec] | None:
        """The result behind the views that make a value, and its layout if that of the value is to be `target`."""
        node = self._graph.producer(value)
        if node is None:
            return None
        if takes_any_layout(node):
            return value, target
        source = self._graph.viewed(node)
        if source is None:
            return None
        before = self._graph.tensor(source)
        if node.op is OPS["permute"]:
            strides = dict(zip(node.bound["axes"], target.strides, strict=True))
            ordered = tuple(strides[axis] for axis in sorted(strides))
            return self._traced(source, target._replace(shape=before.shape, strides=ordered))
        view = layout.reshape(target, before.shape) if node.op is OPS["reshape"] else None
        return None if view is None else self._traced(source, place(target, view))

    def _admits(self, value: int, target: Spec) -> bool:
        """Return whether a result may have the layout `target`: no user depends on the present one."""
        spec, node = self._graph.tensor(value), self._graph.producer(value)
        rows = spec.ndim >= 2 and spec.strides == contiguous_strides(spec.shape) and target.strides[-1] == 1
        return rows and node is not None and not node.replaces and self._keeps_views(value, target)

    def _keeps_views(self, value: int, spec: Spec) -> bool:
        """Return whether views of a value stay views if its layout is `spec`, and its other users take any layout."""
        if self._graph.is_live_out(value):
            return False
        for node in self._graph.users(value):
            copies = Trait.JOINS_OPERANDS in node.op.traits and node.op.view is None
            if copies or (takes_any_layout(node) and not node.replaces):
                continue
            if Trait.LAYOUT_TRANSPARENT not in node.op.traits or node.op.view is None:
                return False
            view = node.op.view(spec, node.bound)
            if view is None and self._graph.is_view(node):
                return False
            if view is None:
                continue
            (out,) = node.outputs
            now = place(spec, view)
            if now != self._graph.specs[out] and not self._keeps_views(out, now):
                return False
        return True


def takes_any_layout(node: Node) -> bool:
    """Return whether the device's kernels for an op read and write tensors of any layout."""
    return node.origin is not None and node.op.name in node.device.capabilities.strided_ops
