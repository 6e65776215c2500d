"""Pads the rows of logits and of their gradients to the alignment at which a device reads and writes them fastest.

A vocabulary has any number of words, so rows of logits start at any address, and products that write logits or read their
gradients take several times as long. The gradient is written with longer rows, and its users get a view; the product that
makes the logits gets rows of zeros joined to its weight. Short rows in half precision begin at whole vectors instead of
cache lines. Only devices that state a row alignment are affected.
"""

from __future__ import annotations

from polyhal.hal.compile.ir.graph import Graph, Node, Operand, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.ops.opdef import OPS

_MIN_PIECES = 32
"""Rows shorter than this many alignments get a smaller alignment: padding would lengthen them too much."""
_VECTOR, _MIN_VECTORS = 16, 8
"""Bytes that matrix units read at once, the alignment of short rows in half precision, and the minimum in a row."""


def pad_gemm(graph: Graph) -> Graph:
    """Pad long rows between products and cross entropy to a multiple of the device's alignment."""
    padding = _Padding(graph)
    return padding.run() if padding.columns else graph


class _Padding:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._rewriter = GraphRewriter(graph)
        self.columns: dict[int, int] = {}
        """Padded row lengths of results, by the position of their node."""
        probe = GraphRewriter.probe(graph)
        for k, node in enumerate(graph.nodes):
            columns = self._padded_length(node)
            if columns and node.op is OPS["cross_entropy_rows_grad"]:
                padded = (*node.params[:-1], columns)
                if not self._leaves(node.outputs[0]) and probe.has_kernel(node.op, node.inputs, padded, node.place):
                    self.columns[k] = columns
            elif columns and node.op is OPS["cross_entropy_rows"]:
                product = self._product(node)
                if product is not None:
                    self.columns[product] = columns

    def run(self) -> Graph:
        for k, node in enumerate(self._graph.nodes):
            if k not in self.columns:
                self._copy(node)
            elif node.op is OPS["linear"]:
                self._pad(node, self._with_padded_weight(node, self.columns[k]), node.params)
            else:
                self._pad(node, list(self._rewriter.operands(node)), (*node.params[:-1], self.columns[k]))
        return self._rewriter.finish()

    def _padded_length(self, node: Node) -> int:
        """The row length that the logits of a node should have; 0 if theirs is right."""
        if "logits" not in node.op.schema.inputs or node.replaces or not can_fuse(node):
            return 0
        logits = self._graph.tensor(node.value(node.op.schema.inputs.index("logits")))
        nbytes = logits.shape[1] * logits.dtype.itemsize
        alignment, pieces = node.device.capabilities.limits.row_alignment, _MIN_PIECES
        if alignment > _VECTOR and nbytes < pieces * alignment and logits.dtype.itemsize == 2:
            alignment, pieces = _VECTOR, _MIN_VECTORS
        if nbytes % alignment == 0 or nbytes < pieces * alignment:
            return 0
        return -(-nbytes // alignment) * alignment // logits.dtype.itemsize

    def _product(self, node: Node) -> int | None:
        """Position of the product that makes a loss's logits, if only losses read them and copying its weight pays."""
        graph = self._graph
        value = node.value(0)
        while (producer := graph.producer(value)) is not None:
            if producer.op is OPS["linear"]:
                out, weight = graph.tensor(producer.outputs[0]), graph.tensor(producer.value(1))
                pays = out.size >= weight.size and not producer.replaces and can_fuse(producer)
                return graph.producer_index(value) if pays and self._read_by_losses(producer.outputs[0]) else None
            if producer.op is not OPS["reshape"]:
                return None
            value = producer.value(0)
        return None

    def _read_by_losses(self, value: int) -> bool:
        """Return whether only losses read a value, as it is or reshaped."""
        return not self._leaves(value) and all(
            n.op.family == "loss" or (n.op is OPS["reshape"] and self._read_by_losses(n.outputs[0]))
            for n in self._graph.users(value)
        )

    def _leaves(self, value: int) -> bool:
        """Return whether a value or a view of it is a result of the graph, whose layout was recorded and must stay."""
        return self._graph.is_live_out(value) or any(
            n.op.view is not None and self._leaves(n.outputs[0]) for n in self._graph.users(value)
        )

    def _with_padded_weight(self, node: Node, columns: int) -> list[Operand]:
        """The operands of a product whose weight, and bias, have `columns` rows."""
        x, *padded = self._rewriter.operands(node)
        return [x, *(None if operand is None else self._with_zeros(node, operand, columns) for operand in padded)]

    def _with_zeros(self, node: Node, operand: Operand, rows: int) -> Operand:
        """A tensor followed by rows of zeros. It is joined with them, so that a cast is computed in place before them."""
        spec = self._rewriter.tensor(operand)
        missing = (rows - spec.shape[0], *spec.shape[1:])
        (zeros,) = self._rewriter.add(OPS["full"], [], (missing, 0.0, spec.dtype), node.origin)
        return self._rewriter.add(OPS["concat"], [operand, zeros], (0,), node.origin)[0]

    def _pad(self, node: Node, inputs: list[Operand], params: tuple[object, ...]) -> None:
        """Add a node with padded rows, and a view of the rows that it had."""
        (out,) = node.outputs
        spec = self._graph.tensor(out)
        (padded,) = self._rewriter.add(node.op, inputs, params, node.origin)
        whole = ((0,) * spec.ndim, spec.shape, (1,) * spec.ndim)
        self._rewriter.replace(node, OPS["slice"], [padded], whole)

    def _copy(self, node: Node) -> None:
        """Copy a node; a view takes the layout that its operand has now."""
        source = node.inputs[0] if node.inputs else None
        if isinstance(source, Value) and node.op.view is not None and not node.replaces:
            now = self._rewriter.operand(source)
            if self._rewriter.new.spec_of(now) != self._graph.spec_of(source):
                self._rewriter.replace(node, node.op, self._rewriter.operands(node), node.params)
                return
        self._rewriter.keep(node)
