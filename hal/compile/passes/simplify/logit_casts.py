"""Casts of logits and of their gradients, which the kernels of losses perform themselves.

Programs convert logits in half precision to float32 for the loss, and autograd converts the gradient back. Kernels of losses
convert each element when they load it and round each gradient when they store it, with equal results. Without the casts no
float32 matrix of logits is written, and `pad_gemm` pads the products before and after the loss.
"""

from __future__ import annotations

from polyhal.hal.compile.ir.graph import Graph, Node, Operand, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.dtypes import DType, accumulator
from polyhal.hal.layout import contiguous
from polyhal.hal.ops.opdef import OPS

_COPIES = (OPS["contiguous"], OPS["copy"])


def remove_logit_casts(graph: Graph) -> Graph:
    """Let losses read logits in the half precision from which they were cast, where the device has a kernel for that."""
    casts = _Casts(graph)
    for k, node in enumerate(graph.nodes):
        casts.consider(k, node)
    return casts.applied() if casts.sources else graph


class _Casts:
    """Losses that can do without a cast."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._probe = GraphRewriter.probe(graph)
        self.sources: dict[int, tuple[int, list[Node]]] = {}
        """By the position of a loss: the logits before they were cast, and the nodes after the cast that rearrange them."""
        self._moves: set[int] = set()
        """Results that only rearrange a gradient, and take its dtype."""
        self._ends: set[int] = set()
        """Casts of gradients, which become the gradients."""

    def consider(self, k: int, node: Node) -> None:
        """Note a loss if its logits were cast, and the casts of its gradient, which must all be back to their dtype."""
        if "logits" not in node.op.schema.inputs or node.replaces or not can_fuse(node):
            return
        at = node.op.schema.inputs.index("logits")
        found = self._uncast(node.value(at))
        if found is None:
            return
        source, moves = found
        inputs: list[Operand] = list(node.inputs)
        inputs[at] = self._moved(self._probe, Value(source), moves)
        results = self._probe.infer(node.op, inputs, node.params)
        narrowed = [v for v, spec in zip(node.outputs, results, strict=True) if spec != self._graph.specs[v]]
        half = self._graph.tensor(source).dtype
        passed: set[int] = set()
        ends: set[int] = set()
        returned = all(self._returns(v, half, passed, ends) for v in narrowed)
        if returned and self._probe.has_kernel(node.op, inputs, node.params, node.place):
            self.sources[k] = source, moves
            self._moves |= passed
            self._ends |= ends

    def applied(self) -> Graph:
        """Return the graph without these casts. Casts that others read stay."""
        rewriter = GraphRewriter(self._graph)
        for k, node in enumerate(self._graph.nodes):
            if k in self.sources:
                source, moves = self.sources[k]
                inputs = list(rewriter.operands(node))
                at = node.op.schema.inputs.index("logits")
                inputs[at] = self._moved(rewriter, rewriter.operand(Value(source)), moves)
                rewriter.replace(node, node.op, inputs, node.params)
            elif node.outputs[0] in self._ends:
                rewriter.replace_all_uses(node.outputs[0], rewriter.operand(node.inputs[0]))
            elif node.outputs[0] in self._moves:
                self._move(rewriter, node)
            else:
                rewriter.keep(node)
        return rewriter.finish()

    def _move(self, rewriter: GraphRewriter, node: Node) -> None:
        """Add a node that rearranges a gradient, in the gradient's new dtype; zeros around it are made in that dtype, too."""
        if node.op is not OPS["overwrite"]:
            rewriter.replace(node, node.op, rewriter.operands(node), node.params)
            return
        gradient = rewriter.operand(node.inputs[1])
        spec = contiguous(rewriter.tensor(gradient).dtype, self._graph.tensor(node.outputs[0]).shape)
        made = self._graph.nodes[self._graph.producer_index(node.value(0))]
        (zeros,) = rewriter.add(made.op, [], (spec.shape, made.bound["value"], spec.dtype), made.origin)
        (found,) = rewriter.new.add(node.op, (zeros, gradient), node.params, [spec], node.origin, node.replaces)
        rewriter.replace_all_uses(node.outputs[0], Value(found))

    def _uncast(self, value: int) -> tuple[int, list[Node]] | None:
        """Return the tensor in half precision that was cast to `value`, and the nodes that rearrange the cast."""
        moves: list[Node] = []
        while (node := self._graph.producer(value)) is not None:
            if node.op is OPS["cast"]:
                source = self._graph.tensor(node.value(0))
                wide = self._graph.tensor(value).dtype
                fits = source.dtype.is_floating_point and source.dtype is not wide and accumulator(source.dtype) is wide
                return (node.value(0), moves[::-1]) if fits else None
            if not _rearranges(node):
                return None
            moves.append(node)
            value = node.value(0)
        return None

    def _returns(self, value: int, half: DType, passed: set[int], ends: set[int]) -> bool:
        """Return whether a gradient is read by casts to `half` only, as it is or rearranged. Collects both."""
        graph = self._graph
        if graph.is_live_out(value):
            return False
        for node in graph.users(value):
            out = node.outputs[0]
            if node.op is OPS["cast"] and not node.replaces:
                if graph.tensor(out).dtype is not half or graph.tensor(out).strides != graph.tensor(value).strides:
                    return False
                ends.add(out)
            elif (_rearranges(node) or self._fills(node, value)) and self._returns(out, half, passed, ends):
                passed.add(out)
            else:
                return False
        return True

    def _fills(self, node: Node, value: int) -> bool:
        """Return whether a node writes a gradient into a region of zeros, as the gradient of a slice does."""
        if node.op is not OPS["overwrite"] or node.inputs[1] != Value(value):
            return False
        zeros = self._graph.producer(node.value(0))
        return zeros is not None and zeros.op is OPS["full"] and zeros.bound["value"] == 0

    @staticmethod
    def _moved(rewriter: GraphRewriter, x: Operand, moves: list[Node]) -> Operand:
        """Add nodes that rearrange `x`."""
        for node in moves:
            (x,) = rewriter.add(node.op, [x], node.params, node.origin)
        return x


def _rearranges(node: Node) -> bool:
    """Return whether a node only copies elements of one operand, or makes a view of it, and may add zeros."""
    if node.replaces or len(node.inputs) != 1:
        return False
    if node.op is OPS["pad"]:
        return bool(node.bound["value"] == 0)
    return node.op.view is not None or node.op in _COPIES
