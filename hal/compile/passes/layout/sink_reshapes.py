"""Sinks reshapes below the pointwise ops and reductions that follow them, so that these can be fused with earlier nodes.

Layers work on (batch, time, features) and products on (batch * time, features), which puts reshapes between ops that could
run as one group.
"""

from __future__ import annotations

import math

from polyhal.hal import layout
from polyhal.hal.compile.ir.graph import Graph, Node, Operand, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.compile.passes.fuse.elementwise import broadcasts, may_end
from polyhal.hal.layout import Spec, broadcast_strides
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.traits import Trait

Shape = tuple[int, ...]


def sink_reshapes(graph: Graph) -> Graph:
    """Move reshapes of pointwise results below the ops that read them, on devices that fuse groups of ops."""
    return _Sinking(graph).run()


class _Sinking:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._rewriter = GraphRewriter(graph)

    def run(self) -> Graph:
        for node in self._graph.nodes:
            if not self._sink(node):
                self._rewriter.keep(node)
        return self._rewriter.finish()

    def _sink(self, node: Node) -> bool:
        """Add a node in the shape of its operand's source, and a reshape after it, if that helps."""
        if node.replaces or not can_fuse(node):
            return False
        inputs = self._rewriter.operands(node)
        if Trait.POINTWISE in node.op.traits:
            result = self._pointwise(node, inputs)
        elif may_end(node):
            result = self._reduction(node, inputs)
        else:
            result = None
        if result is None:
            return False
        (out,) = node.outputs
        spec = self._graph.tensor(out)
        if self._rewriter.tensor(result) != spec:
            (result,) = self._rewriter.add(OPS["reshape"], [result], (spec.shape,), node.origin)
        self._rewriter.replace_all_uses(out, result)
        return True

    def _pointwise(self, node: Node, inputs: tuple[Operand, ...]) -> Value | None:
        tensor = self._rewriter.tensor
        result = self._graph.tensor(node.outputs[0])
        if any(isinstance(x, Value) and self._is_pointwise(x) and tensor(x).shape == result.shape for x in inputs):
            return None
        sources = [self._before_reshape(x) for x in inputs]
        source = next((s for s in sources if s is not None and tensor(s).size == result.size), None)
        if source is None:
            return None
        shape = tensor(source).shape
        operands: list[Operand] = []
        for x, before in zip(inputs, sources, strict=True):
            if before is not None and tensor(before).shape == shape:
                operands.append(before)
                continue
            spec = self._rewriter.new.spec_of(x)
            if not isinstance(spec, Spec):
                operands.append(x)
                continue
            view = _broadcast_shape(spec, result.shape, shape)
            if view is None:
                return None
            same = view == spec.shape
            operands.append(x if same else self._rewriter.add(OPS["reshape"], [x], (view,), node.origin)[0])
        return self._rewriter.add(node.op, operands, node.params, node.origin)[0]

    def _reduction(self, node: Node, inputs: tuple[Operand, ...]) -> Value | None:
        (x,) = inputs
        source = self._before_reshape(x)
        if source is None or self._graph.use_count(node.value(0)) != 1:
            return None
        old, new = self._rewriter.tensor(x), self._rewriter.tensor(source)
        axes = _matching_axes(old.shape, new.shape, node.bound["axis"])
        return None if axes is None else self._rewriter.add(node.op, [source], (axes, False), node.origin)[0]

    def _before_reshape(self, x: Operand) -> Value | None:
        """The operand of the reshape that makes `x`, if that is a pointwise result."""
        producer = self._rewriter.producer(x)
        if producer is None or producer.op is not OPS["reshape"]:
            return None
        source = producer.inputs[0]
        return source if isinstance(source, Value) and self._is_pointwise(source) else None

    def _is_pointwise(self, x: Value) -> bool:
        producer = self._rewriter.producer(x)
        return producer is not None and Trait.POINTWISE in producer.op.traits


def _broadcast_shape(spec: Spec, old: Shape, new: Shape) -> Shape | None:
    """The shape in which an operand that broadcasts to `old` broadcasts likewise to `new`; None where that takes a copy."""
    if spec.size == 1:
        return ()
    spread = layout.reshape(Spec(spec.dtype, old, broadcast_strides(spec.shape, spec.strides, old)), new)
    if spread is None:
        return None
    if broadcasts(spec.shape, new) and broadcast_strides(spec.shape, spec.strides, new) == spread.strides:
        return spec.shape
    # The operand is the same along the axes of stride 0 and has all the others.
    short = tuple(1 if step == 0 else n for n, step in zip(new, spread.strides, strict=True))
    view = layout.reshape(spec, short) if math.prod(short) == spec.size else None
    if view is None or broadcast_strides(short, view.strides, new) != spread.strides:
        return None
    return short


def _matching_axes(old: Shape, new: Shape, axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes of `new` that run over the same elements as `axes` of `old`, another shape of the same elements."""
    found: list[int] = []
    if 0 in old:
        return None
    i = j = 0
    while i < len(old) or j < len(new):
        first_old, first_new = i, j
        a = b = 1
        while i == first_old or a != b:
            if (a <= b or i == first_old) and i < len(old):
                a *= old[i]
                i += 1
            elif j < len(new):
                b *= new[j]
                j += 1
            else:
                break
        if a != b:
            return None
        reduced = [k in axes for k in range(first_old, i) if old[k] != 1]
        if any(reduced):
            if not all(reduced):
                return None
            found += range(first_new, j)
    return tuple(found) or None
