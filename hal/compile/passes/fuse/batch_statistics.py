"""Joins batch norm to the convolution before it, whose kernel computes statistics of its results before it stores them.

The pass `channels_last` has stored the images with channels last, has made products of convolutions with 1x1 kernels, and lets
batch norm read matrices (N * H * W, C). A product of such matrices is a convolution of images of one pixel.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.hal import layout
from polyhal.hal.compile.ir.graph import Graph, Node, Operand, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OPS

_JOINED = OPS["conv2d_batch_norm"]
_NORMS = {"batch_norm": False, "batch_norm_relu": True, "batch_norm_add_relu": True}
"""Kinds of batch norm, and whether they end with relu. The last one has an addend as its second operand."""
_SECOND = (0, 3, 1, 2)


def join_batch_norm(graph: Graph) -> Graph:
    """Replace convolutions and their batch norm by one op where the device has a kernel for it."""
    search = _Search(graph)
    return search.rewritten() if search.found else graph


@dataclass(frozen=True, slots=True)
class _Pair:
    """Positions of a convolution, of the views of its result that are made before its batch norm, and of that."""

    product: int
    views: tuple[int, ...]
    norm: int


class _Search:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.found: dict[int, _Pair] = {}
        """Pairs by the position of their batch norm."""
        probe = GraphRewriter.probe(graph)
        for k, node in enumerate(graph.nodes):
            pair = self._pair(k) if node.op.name in _NORMS and can_fuse(node) and not node.replaces else None
            if pair is not None and self._has_kernel(probe, pair):
                self.found[k] = pair

    def _pair(self, norm: int) -> _Pair | None:
        """Return the convolution whose result a batch norm reads, unless another op reads that before."""
        graph = self._graph
        node = graph.nodes[norm]
        x = node.value(0)
        root = graph.root(x)
        k = graph.producer_index(root)
        if k < 0 or graph.root_offset(x) or not graph.tensor(x).is_contiguous or graph.tensor(x).ndim != 2:
            return None
        product, spec = graph.nodes[k], graph.tensor(root)
        if not product.merges_with(node) or product.replaces or spec.size != graph.tensor(x).size:
            return None
        if product.op is OPS["conv2d"]:
            fits = layout.is_channels_last(spec) and product.inputs[2] is None and product.bound["groups"] == 1
        else:
            fits = product.op is OPS["linear"] and product.inputs[2] is None and spec.shape == graph.tensor(x).shape
        views = [i for i in range(k + 1, norm) if self._reads(graph.nodes[i], root)]
        if not fits or not all(graph.is_view(graph.nodes[i]) for i in views):
            return None
        return _Pair(k, tuple(views), norm)

    def _reads(self, node: Node, root: int) -> bool:
        return any(isinstance(self._graph.specs[v], Spec) and self._graph.root(v) == root for v in node.reads)

    # --- writing ----------------------------------------------------------------------------------------------------

    def _has_kernel(self, probe: GraphRewriter, pair: _Pair) -> bool:
        node = self._call(probe, pair)
        return probe.can_write(node, node.inputs, self._results(pair))

    def _results(self, pair: _Pair) -> list[Spec]:
        """Return the specs of the results, images with channels last."""
        graph = self._graph
        product, norm = graph.nodes[pair.product], graph.nodes[pair.norm]
        spec = graph.tensor(product.outputs[0])
        image = layout.channels_last(spec.dtype, self._image_shape(spec))
        return [image, *graph.output_specs(norm)[1:], image]

    @staticmethod
    def _image_shape(spec: Spec) -> tuple[int, ...]:
        return (*spec.shape, *(1,) * (4 - spec.ndim))

    def _call(self, rewriter: GraphRewriter, pair: _Pair) -> Node:
        """Return the joined op in the operands of the new graph, to which it adds views."""
        graph = self._graph
        product, norm = graph.nodes[pair.product], graph.nodes[pair.norm]
        shape = self._image_shape(graph.tensor(product.outputs[0]))

        def image(x: Operand) -> Operand:
            """A tensor with axes of length 1 after its own."""
            spec, now = graph.spec_of(x), rewriter.operand(x)
            if not isinstance(spec, Spec) or spec.ndim == len(shape):
                return now
            return rewriter.add(OPS["reshape"], [now], (self._image_shape(spec),), norm.origin)[0]

        addend: Operand = None
        parameters = norm.inputs[1:]
        if norm.op is OPS["batch_norm_add_relu"]:
            addend, *rest = parameters
            parameters = tuple(rest)
            n, c, h, w = shape
            (addend,) = rewriter.add(OPS["reshape"], [rewriter.operand(addend)], ((n, h, w, c),), norm.origin)
            (addend,) = rewriter.add(OPS["permute"], [addend], (_SECOND,), norm.origin)
        windows = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)} | (
            product.bound if product.op is OPS["conv2d"] else {}
        )
        params = {**windows, "eps": norm.bound["eps"], "relu": _NORMS[norm.op.name]}
        inputs = (*(image(x) for x in product.inputs[:2]), addend, *(rewriter.operand(x) for x in parameters))
        return Node(_JOINED, inputs, tuple(params[name] for name in _JOINED.schema.params), (), norm.origin)

    def rewritten(self) -> Graph:
        """Return the graph with all pairs replaced, each at the position of its batch norm."""
        graph, rewriter = self._graph, GraphRewriter(self._graph)
        moved = {k for pair in self.found.values() for k in (pair.product, *pair.views)}
        for k, node in enumerate(graph.nodes):
            if k in self.found:
                self._write(rewriter, self.found[k])
            elif k not in moved:
                rewriter.keep(node)
        return rewriter.finish()

    def _write(self, rewriter: GraphRewriter, pair: _Pair) -> None:
        graph = self._graph
        node, norm = self._call(rewriter, pair), graph.nodes[pair.norm]
        results = [
            Value(v) for v in rewriter.new.add(node.op, node.inputs, node.params, self._results(pair), node.origin)
        ]
        out, *statistics, product = results
        rewriter.replace_all_uses(
            graph.nodes[pair.product].outputs[0], self._like(rewriter, product, pair.product, norm)
        )
        for k in pair.views:
            rewriter.keep(graph.nodes[k])
        rewriter.replace_all_uses(norm.outputs[0], self._like(rewriter, out, pair.norm, norm))
        for v, statistic in zip(norm.outputs[1:], statistics, strict=True):
            rewriter.replace_all_uses(v, statistic)

    def _like(self, rewriter: GraphRewriter, image: Value, position: int, norm: Node) -> Value:
        """Return an image with the shape of the first result of an old node."""
        shape = self._graph.tensor(self._graph.nodes[position].outputs[0]).shape
        if shape == rewriter.tensor(image).shape:
            return image
        (last,) = rewriter.add(OPS["permute"], [image], ((0, 2, 3, 1),), norm.origin)
        return rewriter.add(OPS["reshape"], [last], (shape,), norm.origin)[0]
