"""Lets kernels of norms' gradients read half precision, add a gradient that comes past the norm, and cast the sum.

In mixed precision the product before hands over a gradient in half precision, which is cast for the norm. The norm's result is
added to the gradient of the residual, and the sum is cast for the next product. One launch does all that.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.hal.compile.ir.graph import Graph, Node, Operand, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.dtypes import DType, accumulator
from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OPS, OpDef

_ADDING = {
    OPS["layer_norm_grad"]: OPS["layer_norm_add_grad"],
    OPS["rms_norm_grad"]: OPS["rms_norm_add_grad"],
}
_ADD, _CAST = OPS["add"], OPS["cast"]


def fuse_norm_gradients(graph: Graph) -> Graph:
    """Fuse additions and casts into the gradients of norms, on devices that have kernels for that."""
    search = _Search(graph)
    return search.rewritten() if search.found else graph


@dataclass(frozen=True, slots=True)
class _Found:
    """A gradient of a norm, with the nodes that it takes over, by position."""

    op: OpDef
    gradient: Operand
    """The gradient of the norm's result, before it was cast."""
    addend: Value | None
    add: int | None
    cast: int | None
    dtype: DType | None

    def inputs(self, node: Node) -> list[Operand]:
        """The operands of the new node."""
        inputs = [self.gradient, *node.inputs[1:]]
        return inputs if self.op is node.op else [*inputs, self.addend]

    def params(self, node: Node) -> tuple[object, ...]:
        """The parameters of the new node."""
        return node.params if self.op is node.op else (*node.params, self.dtype)


class _Search:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._probe = GraphRewriter.probe(graph)
        self.found: dict[int, _Found] = {}
        """By the position of the norm's gradient."""
        for k, node in enumerate(graph.nodes):
            if node.op in _ADDING and can_fuse(node) and not node.replaces:
                match = next((f for f in self._candidates(k) if self._has_kernel(node, f)), None)
                if match is not None:
                    self.found[k] = match

    def _candidates(self, k: int) -> list[_Found]:
        """The nodes that a gradient might take over: all that are there, then without the cast before it."""
        graph, node = self._graph, self._graph.nodes[k]
        gradient = self._before_cast(node)
        addend, add = self._addition(k)
        cast, dtype = self._cast_of(graph.nodes[k if add is None else add])
        found = []
        if add is not None or cast is not None:
            op = _ADDING[node.op]
            found = [_Found(op, x, addend, add, cast, dtype) for x in dict.fromkeys((gradient, node.inputs[0]))]
        if gradient != node.inputs[0]:
            found.append(_Found(node.op, gradient, None, None, None, None))
        return found

    def _has_kernel(self, node: Node, found: _Found) -> bool:
        return self._probe.has_kernel(found.op, found.inputs(node), found.params(node), node.place)

    def _before_cast(self, node: Node) -> Operand:
        """The gradient of the norm's result before a cast from half precision that only this node reads."""
        graph, x = self._graph, node.inputs[0]
        cast = graph.made_by(x, _CAST)
        if cast is None or not cast.merges_with(node) or graph.use_count(cast.outputs[0]) > 1:
            return x
        narrow, wide = graph.tensor(cast.value(0)).dtype, graph.tensor(cast.outputs[0]).dtype
        half = narrow.is_floating_point and narrow is not wide and accumulator(narrow) is wide
        return cast.inputs[0] if half and not cast.replaces else x

    def _addition(self, k: int) -> tuple[Value | None, int | None]:
        """The tensor to which a gradient is added, if that is all it is used for and the tensor is there before it."""
        graph, node = self._graph, self._graph.nodes[k]
        dx = node.outputs[0]
        users = graph.user_indices(dx)
        if len(users) != 1 or graph.use_count(dx) != 1:
            return None, None
        add = graph.nodes[users[0]]
        if add.op is not _ADD or add.replaces or not add.merges_with(node):
            return None, None
        other = add.inputs[add.inputs[0] == Value(dx)]
        spec, out = graph.spec_of(other), graph.tensor(add.outputs[0])
        fits = isinstance(spec, Spec) and spec.is_contiguous and spec == out == graph.tensor(dx)
        if not isinstance(other, Value) or not fits or graph.producer_index(other.index) >= k:
            return None, None
        return other, users[0]

    def _cast_of(self, node: Node) -> tuple[int | None, DType | None]:
        """The position and dtype of the first cast of the gradient to half precision, if there is one."""
        graph, value = self._graph, node.outputs[0]
        wide = graph.tensor(value).dtype
        for k in graph.user_indices(value):
            cast = graph.nodes[k]
            if cast.op is _CAST and not cast.replaces and cast.merges_with(node):
                dtype = cast.bound["dtype"]
                if dtype.is_floating_point and dtype is not wide and accumulator(dtype) is wide:
                    return k, dtype
        return None, None

    def rewritten(self) -> Graph:
        """Return the graph with all that was found in place of the gradients."""
        graph, rewriter = self._graph, GraphRewriter(self._graph)
        done = {k for f in self.found.values() for k in (f.add, f.cast) if k is not None}
        for k, node in enumerate(graph.nodes):
            if k in self.found:
                self._write(rewriter, node, self.found[k])
            elif k not in done:
                rewriter.keep(node)
        return rewriter.finish()

    def _write(self, rewriter: GraphRewriter, node: Node, found: _Found) -> None:
        graph = self._graph
        inputs = [rewriter.operand(x) for x in found.inputs(node)]
        results = rewriter.add(found.op, inputs, found.params(node), node.origin)
        for v, result in zip(node.outputs, results, strict=False):
            rewriter.replace_all_uses(v, result)
        if found.add is not None:
            rewriter.replace_all_uses(graph.nodes[found.add].outputs[0], results[0])
        if found.cast is not None:
            rewriter.replace_all_uses(graph.nodes[found.cast].outputs[0], results[-1])
