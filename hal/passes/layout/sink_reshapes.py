"""Elementwise ops, and reductions, behind a reshape of an elementwise result work in that result's shape instead.

The reshape then comes after them, and the ops can run as one group. Layers on (batch, time, features) and products on
(batch * time, features) bring such reshapes.
"""

from __future__ import annotations

import math

from polyhal.hal import layout
from polyhal.hal.ir.graph import Graph, Node, Operand
from polyhal.hal.ir.rewriter import Rewriting, has_groups, uses
from polyhal.hal.layout import Spec, broadcast_strides
from polyhal.hal.ops.opdef import OPS, Value
from polyhal.hal.ops.pointwise.elementwise import OPERANDS
from polyhal.hal.ops.pointwise.fused_elementwise import REDUCTIONS
from polyhal.hal.passes.fuse.elementwise import broadcasts, may_end


def align_shapes(graph: Graph) -> Graph:
    """Move reshapes behind the ops that follow them, on devices that run groups of ops."""
    return _Alignment(graph).run()


class _Alignment:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._rewriting = Rewriting(graph)
        self._uses = uses(graph)

    def run(self) -> Graph:
        for node in self._graph.nodes:
            if not self._aligned(node):
                self._rewriting.keep(node)
        return self._rewriting.finish()

    def _aligned(self, node: Node) -> bool:
        """Add a node in another shape and a reshape after it, if that helps."""
        if node.replaces or not has_groups(node.origin):
            return False
        inputs = self._rewriting.operands(node)
        if node.op.name in OPERANDS:
            made = self._elementwise(node, inputs)
        elif node.op.name in REDUCTIONS and may_end(node):
            made = self._reduction(node, inputs)
        else:
            made = None
        if made is None:
            return False
        (out,) = node.outputs
        wanted = self._graph.specs[out]
        assert isinstance(wanted, Spec)
        if self._rewriting.new.specs[made.index] != wanted:
            (made,) = self._rewriting.add(OPS["reshape"], [made], (wanted.shape,), node.origin)
        self._rewriting.equate(out, made)
        return True

    def _elementwise(self, node: Node, inputs: tuple[Operand, ...]) -> Value | None:
        wanted = self._graph.specs[node.outputs[0]]
        assert isinstance(wanted, Spec)
        if any(self._is_made(x) and self._spec(x).shape == wanted.shape for x in inputs if isinstance(x, Value)):
            return None
        sources = [self._before_reshape(x) for x in inputs]
        source = next((s for s in sources if s is not None and self._spec(s).size == wanted.size), None)
        if source is None:
            return None
        shape = self._spec(source).shape
        taken: list[Operand] = []
        for x in inputs:
            spec = self._rewriting.new.spec_of(x)
            before = self._before_reshape(x)
            if before is not None and self._spec(before).shape == shape:
                taken.append(before)
                continue
            view = _seen_as(spec, wanted.shape, shape) if isinstance(spec, Spec) else ()
            if view is None:
                return None
            same = not isinstance(spec, Spec) or view == spec.shape
            taken.append(x if same else self._rewriting.add(OPS["reshape"], [x], (view,), node.origin)[0])
        return self._rewriting.add(node.op, taken, node.params, node.origin)[0]

    def _reduction(self, node: Node, inputs: tuple[Operand, ...]) -> Value | None:
        (x,) = inputs
        source = self._before_reshape(x)
        before = node.inputs[0]
        if source is None or not isinstance(before, Value) or self._uses[before.index] != 1:
            return None
        bound = node.op.bind(node.params)
        axes = _matching(self._spec(x).shape, self._spec(source).shape, bound["axis"])
        if axes is None:
            return None
        return self._rewriting.add(node.op, [source], (axes, False), node.origin)[0]

    def _before_reshape(self, x: Operand) -> Value | None:
        """The elementwise result that a reshape takes, where `x` is such a reshape."""
        maker = self._rewriting.makers.get(x.index) if isinstance(x, Value) else None
        if maker is None or maker.op is not OPS["reshape"]:
            return None
        source = maker.inputs[0]
        return source if isinstance(source, Value) and self._is_made(source) else None

    def _is_made(self, x: Value) -> bool:
        """Whether an elementwise op makes a value."""
        maker = self._rewriting.makers.get(x.index)
        return maker is not None and maker.op.name in OPERANDS

    def _spec(self, x: Operand) -> Spec:
        spec = self._rewriting.new.spec_of(x)
        assert isinstance(spec, Spec)
        return spec


def _seen_as(spec: Spec, old: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape in which an operand that broadcasts to `old` does the same for `new`; None where it would take a copy."""
    if spec.size == 1:
        return ()
    spread = layout.reshape(Spec(spec.dtype, old, broadcast_strides(spec.shape, spec.strides, old)), new)
    if spread is None:
        return None
    if broadcasts(spec.shape, new) and broadcast_strides(spec.shape, spec.strides, new) == spread.strides:
        return spec.shape
    # It is the same along the axes with stride 0, and has the others.
    short = tuple(1 if step == 0 else n for n, step in zip(new, spread.strides, strict=True))
    view = layout.reshape(spec, short) if math.prod(short) == spec.size else None
    if view is None or broadcast_strides(short, view.strides, new) != spread.strides:
        return None
    return short


def _matching(old: tuple[int, ...], new: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes of `new` that hold the same elements as `axes` of `old`, another shape of the same elements."""
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
        run = [k in axes for k in range(first_old, i) if old[k] != 1]
        if any(run):
            if not all(run):
                return None
            found += range(first_new, j)
    return tuple(found) or None
