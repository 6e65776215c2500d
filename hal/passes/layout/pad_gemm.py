"""Logits and their gradients get rows that begin where a device reads and writes them fastest.

A vocabulary has any number of words, so rows of logits begin anywhere, and products that write them or read their gradients
take a multiple of the time. The gradient comes in longer rows, of which a view is passed on; the product that makes the logits
gets rows of zeros after those of its weight. Only devices that state an alignment are concerned.
"""

from __future__ import annotations

from polyhal.hal.ir.graph import Graph, Node, Operand
from polyhal.hal.ir.rewriter import Rewriting, has_groups
from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OPS, Value

_LONG = 32
"""Times the alignment: rows from this length on become at most so much longer as one part in it."""


def pad_logits(graph: Graph) -> Graph:
    """Give long rows between products and cross entropy a whole number of aligned pieces."""
    padding = _Padding(graph)
    return padding.run() if padding.columns else graph


class _Padding:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._rewriting = Rewriting(graph)
        self._makers = {v: k for k, n in enumerate(graph.nodes) for v in n.outputs}
        self._kept = {*graph.outputs, *graph.updates.values()}
        self._readers: dict[int, list[Node]] = {}
        for node in graph.nodes:
            for x in dict.fromkeys(x.index for x in node.inputs if isinstance(x, Value)):
                self._readers.setdefault(x, []).append(node)
        self.columns: dict[int, int] = {}
        """How long the rows of a node's result become, by the node's number."""
        trial = Rewriting(Graph(graph.specs))
        for k, node in enumerate(graph.nodes):
            columns = self._wanted(node)
            if columns and node.op is OPS["cross_entropy_rows_grad"]:
                assert node.origin is not None
                longer = (*node.params[:-1], columns)
                if not self._leaves(node.outputs[0]) and trial.has_kernel(node.op, node.inputs, longer, node.origin):
                    self.columns[k] = columns
            elif columns and node.op is OPS["cross_entropy_rows"]:
                product = self._product(node)
                if product is not None:
                    self.columns[product] = columns

    def run(self) -> Graph:
        for k, node in enumerate(self._graph.nodes):
            if k not in self.columns:
                self._follow(node)
            elif node.op is OPS["linear"]:
                self._lengthen(node, self._with_longer_weight(node, self.columns[k]), node.params)
            else:
                self._lengthen(node, list(self._rewriting.operands(node)), (*node.params[:-1], self.columns[k]))
        return self._rewriting.finish()

    def _wanted(self, node: Node) -> int:
        """The length that rows of the logits of a node should have; 0 where theirs is right."""
        if "logits" not in node.op.inputs or node.replaces or not has_groups(node.origin):
            return 0
        assert node.origin is not None
        logits = self._graph.spec_of(node.inputs[node.op.inputs.index("logits")])
        assert isinstance(logits, Spec)
        nbytes = logits.shape[1] * logits.dtype.itemsize
        alignment = node.origin.device.capabilities.limits.row_alignment
        if nbytes % alignment == 0 or nbytes < _LONG * alignment:
            return 0
        return -(-nbytes // alignment) * alignment // logits.dtype.itemsize

    def _product(self, node: Node) -> int | None:
        """The product that makes the logits of a cross entropy, where only losses read them and the copy of its weight pays."""
        value = node.inputs[0]
        while isinstance(value, Value) and value.index in self._makers:
            k = self._makers[value.index]
            maker = self._graph.nodes[k]
            if maker.op is OPS["linear"]:
                out, weight = self._graph.specs[maker.outputs[0]], self._graph.spec_of(maker.inputs[1])
                assert isinstance(out, Spec)
                assert isinstance(weight, Spec)
                pays = out.size >= weight.size and not maker.replaces and has_groups(maker.origin)
                return k if pays and self._read_by_losses(maker.outputs[0]) else None
            if maker.op is not OPS["reshape"]:
                return None
            value = maker.inputs[0]
        return None

    def _read_by_losses(self, value: int) -> bool:
        """Whether nothing but losses reads a value, as it is or reshaped."""
        readers = self._readers.get(value, ())
        return not self._leaves(value) and all(
            n.op.family == "loss" or (n.op is OPS["reshape"] and self._read_by_losses(n.outputs[0])) for n in readers
        )

    def _leaves(self, value: int) -> bool:
        """Whether a value, or a view of it, is a result of the graph: those lie as they were recorded."""
        return value in self._kept or any(
            n.op.view is not None and self._leaves(n.outputs[0]) for n in self._readers.get(value, ())
        )

    def _with_longer_weight(self, node: Node, columns: int) -> list[Operand]:
        """The operands of a product whose weight, and bias, have `columns` rows."""
        x, weight, bias = self._rewriting.operands(node)
        spec = self._rewriting.new.spec_of(weight)
        assert isinstance(spec, Spec)
        after = (0, columns - spec.shape[0])
        pad = OPS["pad"]
        (weight,) = self._rewriting.add(pad, [weight], ((after, (0, 0)), 0), node.origin)
        if bias is not None:
            (bias,) = self._rewriting.add(pad, [bias], ((after,), 0), node.origin)
        return [x, weight, bias]

    def _lengthen(self, node: Node, inputs: list[Operand], params: tuple[object, ...]) -> None:
        """Add a node with longer rows, and a view of those that it had."""
        (out,) = node.outputs
        spec = self._graph.specs[out]
        assert isinstance(spec, Spec)
        (made,) = self._rewriting.add(node.op, inputs, params, node.origin)
        whole = ((0,) * spec.ndim, spec.shape, (1,) * spec.ndim)
        (view,) = self._rewriting.add(OPS["slice"], [made], whole, node.origin)
        self._rewriting.equate(out, view)

    def _follow(self, node: Node) -> None:
        """Take a node over; a view lies as what it views does now."""
        source = node.inputs[0] if node.inputs else None
        if isinstance(source, Value) and node.op.view is not None and not node.replaces:
            now = self._rewriting.operand(source)
            if self._rewriting.new.spec_of(now) != self._graph.spec_of(source):
                (made,) = self._rewriting.add(node.op, self._rewriting.operands(node), node.params, node.origin)
                self._rewriting.equate(node.outputs[0], made)
                return
        self._rewriting.keep(node)
