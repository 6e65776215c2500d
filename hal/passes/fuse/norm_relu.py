"""relu after batch norm is done where the results of the norm are stored, and so is the gradient of both.

The result of the norm must be read by nothing else. Its gradient is joined with that of relu where the forward pass was, too.
Devices take these ops or not.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.hal.ir.graph import Graph, Node, Operand, Value
from polyhal.hal.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.ops.opdef import OPS


def fuse_norm_relu(graph: Graph) -> Graph:
    """Join relu and batch norm, on devices that have kernels for both together."""
    search = _Search(graph)
    norms = search.norms
    if not norms:
        return graph
    gradients = search.gradients()
    left_out = {*norms.values(), *(found.relu_grad for found in gradients.values())}
    rewriter = GraphRewriter(graph)
    for k, node in enumerate(graph.nodes):
        if k in norms:
            relu = graph.nodes[norms[k]]
            out, *statistics = rewriter.add(OPS["batch_norm_relu"], rewriter.operands(node), node.params, node.origin)
            rewriter.replace_all_uses(relu.outputs[0], out)
            for value, made in zip(node.outputs[1:], statistics, strict=True):
                rewriter.replace_all_uses(value, made)
        elif k in gradients:
            inputs = [rewriter.operand(x) for x in gradients[k].inputs]
            results = rewriter.add(OPS["batch_norm_relu_grad"], inputs, node.params, node.origin)
            for value, made in zip(node.outputs, results, strict=True):
                rewriter.replace_all_uses(value, made)
        elif k not in left_out:
            rewriter.keep(node)
    return rewriter.finish()


@dataclass(frozen=True, slots=True)
class _Gradient:
    """The operands of a joined gradient, and the node that it makes superfluous."""

    inputs: tuple[Operand, ...]
    relu_grad: int


class _Search:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._maker = {v: k for k, n in enumerate(graph.nodes) for v in n.outputs}
        self._trial = GraphRewriter.probe(graph)
        self.norms: dict[int, int] = {}
        """Nodes of batch norm, and those of the relu that alone reads their results."""
        for k, node in enumerate(graph.nodes):
            norm = self._made_by(node.inputs[0], "batch_norm") if node.op.name == "relu" else None
            if norm is not None and self._joins(norm, node):
                self.norms[norm] = k

    def gradients(self) -> dict[int, _Gradient]:
        """Nodes of the gradient of batch norm that can be joined with that of relu."""
        found = {}
        for k, node in enumerate(self._graph.nodes):
            gradient = self._gradient(node) if node.op.name == "batch_norm_grad" else None
            if gradient is not None:
                found[k] = gradient
        return found

    def _joins(self, k: int, relu: Node) -> bool:
        """Whether a norm and the relu after it become one."""
        norm = self._graph.nodes[k]
        out = norm.outputs[0]
        if not can_fuse(norm) or self._graph.use_count(out) != 1 or norm.replaces or relu.replaces:
            return False
        alike = self._graph.specs[relu.outputs[0]] == self._graph.specs[out]
        return alike and self._has_kernel("batch_norm_relu", norm, relu, norm.inputs)

    def _gradient(self, node: Node) -> _Gradient | None:
        g, x, weight, *statistics = node.inputs
        slope = self._made_by(g, "relu_grad")
        if slope is None or node.replaces:
            return None
        relu_grad = self._graph.nodes[slope]
        relu = self._made_by(relu_grad.inputs[1], "relu")
        norm = None if relu is None else self._made_by(self._graph.nodes[relu].inputs[0], "batch_norm")
        if norm is None or self.norms.get(norm) != relu or self._graph.use_count(relu_grad.outputs[0]) != 1:
            return None
        made = self._graph.nodes[norm]
        own = (*made.inputs[:2], *map(Value, made.outputs[1:]), *made.params)
        if own != (x, weight, *statistics, *node.params):
            return None
        inputs = (relu_grad.inputs[0], *made.inputs, *statistics)
        return _Gradient(inputs, slope) if self._has_kernel("batch_norm_relu_grad", node, relu_grad, inputs) else None

    def _has_kernel(self, op: str, node: Node, other: Node, inputs: tuple[Operand, ...]) -> bool:
        """Whether the device takes two nodes, which were made alike, as one `op`."""
        if node.origin is None or other.origin is None or node.origin.merge_key != other.origin.merge_key:
            return False
        return self._trial.has_kernel(OPS[op], inputs, node.params, node.origin)

    def _made_by(self, x: Operand, op: str) -> int | None:
        """The node that makes `x` as its first result, if it is of that op."""
        k = self._maker.get(x.index) if isinstance(x, Value) else None
        if k is None or not isinstance(x, Value):
            return None
        node = self._graph.nodes[k]
        return k if node.op.name == op and node.outputs[0] == x.index else None
