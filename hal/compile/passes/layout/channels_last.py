"""Channels last: images between convolutions are stored in the order (image, height, width, channel).

Tensor cores read eight channels of a pixel at once, so on devices that prefer it, each convolution would otherwise transpose
its operands. The pass gives results of convolutions this layout, and lets the ops that follow compute on it: pointwise ops
and reductions on tensors of shape (N, H, W, C), batch norm on matrices (N * H * W, C). These are ordinary contiguous tensors,
so that later passes need no rules for them. Where other ops, or the user, read an image, it is copied into the usual order.
"""

from __future__ import annotations

from polyhal.hal import layout
from polyhal.hal.compile.ir.graph import Graph, Node, NodeOrigin, Operand, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.compile.passes.fuse.elementwise import may_end
from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.traits import Trait

_LAST, _SECOND = (0, 2, 3, 1), (0, 3, 1, 2)
"""Permutations that move the channels to the end, and back."""
_VECTOR = 16
"""Bytes that kernels load at once."""
_IMAGES = {"conv2d": 1, "conv2d_input_grad": 1, "conv2d_weight_grad": 2}
"""Convolutions, and the number of their operands, the first ones, that are images."""
_POOLINGS = frozenset({"max_pool2d", "max_pool2d_grad", "avg_pool2d", "avg_pool2d_grad"})
"""Ops whose tensors are all images and whose kernels accept any strides."""


def channels_last(graph: Graph) -> Graph:
    """Store images between convolutions with channels last, on devices that read and write them faster so."""
    conversion = _Conversion(graph)
    return conversion.run() if conversion.has_convolutions else graph


class _Conversion:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._rewriter = GraphRewriter(graph)
        self._last: dict[int, Value] = {}
        """Old values that are stored with channels last: their new values, of shape (N, H, W, C)."""
        self._restored: set[int] = set()
        """The values of `_last` that also have their old layout in the new graph."""
        self._origins: dict[int, NodeOrigin] = {}
        self.has_convolutions = any(self._images(node) for node in graph.nodes)
        self.wanted = self._find_wanted()
        """By value, whether a convolution or a permutation reads it, directly or through ops that follow its layout."""

    # --- where it pays ----------------------------------------------------------------------------------------------

    def _find_wanted(self) -> list[bool]:
        wanted = [False] * len(self._graph.specs)
        for node in reversed(self._graph.nodes):
            images = self._images(node) or self._turned(node, _LAST)
            if not images and self._follows(node):
                results = [v for v in node.outputs if self._is_image(v)]
                images = [v for v in node.reads if self._is_image(v)] if any(wanted[v] for v in results) else []
            for v in images:
                wanted[v] = True
        return wanted

    def _images(self, node: Node) -> list[int]:
        """The images that a convolution reads; none if it is not faster with channels last."""
        count = _IMAGES.get(node.op.name, 0)
        if not count or not can_fuse(node) or node.replaces or node.bound["groups"] != 1:
            return []
        values = [node.value(i) for i in range(count)]
        preferred = node.device.capabilities.channels_last
        return values if all(self._graph.tensor(v).dtype in preferred for v in values) else []

    def _turned(self, node: Node, axes: tuple[int, ...]) -> list[int]:
        """The operand of a node that permutes axes in this way: programs that store images with channels last do."""
        if node.op is not OPS["permute"] or tuple(node.bound["axes"]) != axes or not can_fuse(node):
            return []
        return [v for v in node.reads if self._graph.tensor(v).dtype in node.device.capabilities.channels_last]

    def _is_image(self, value: int) -> bool:
        """Return whether a value is a tensor of four axes whose pixels would have whole vectors of channels."""
        spec = self._graph.specs[value]
        return isinstance(spec, Spec) and spec.ndim == 4 and spec.shape[1] * spec.dtype.itemsize % _VECTOR == 0

    def _is_broadcast(self, value: int) -> bool:
        """Return whether a tensor repeats elements along an axis."""
        spec = self._graph.tensor(value)
        return any(n > 1 and step == 0 for n, step in zip(spec.shape, spec.strides, strict=True))

    def _follows(self, node: Node) -> bool:
        """Return whether a node can compute with channels last if its operands are stored so."""
        if not can_fuse(node) or Trait.VARYING in node.op.traits:
            return False
        if Trait.POINTWISE in node.op.traits:
            return True
        follows = Trait.PER_CHANNEL in node.op.traits or node.op.name in _POOLINGS or may_end(node)
        return follows and not node.replaces

    # --- conversion -------------------------------------------------------------------------------------------------

    def run(self) -> Graph:
        for node in self._graph.nodes:
            if not self._convert(node):
                for v in node.reads:
                    self._restore(v)
                self._rewriter.keep(node)
        for v in (*self._graph.outputs, *self._graph.updates.values()):
            self._restore(v)
        return self._rewriter.finish()

    def _convert(self, node: Node) -> bool:
        """Add a node that computes with channels last, if that is possible and one of its images is stored so."""
        if self._images(node):
            return self._convolution(node)
        if self._turned(node, _LAST) and node.value(0) in self._last:
            self._rewriter.replace_all_uses(node.outputs[0], self._last[node.value(0)])
            return True
        if self._turned(node, _SECOND):
            return self._image_of_program(node)
        if not self._follows(node):
            return False
        if Trait.POINTWISE in node.op.traits:
            return self._pointwise(node)
        if not any(v in self._last for v in node.reads):
            return False
        if node.op.name in _POOLINGS:
            return self._strided(node)
        if Trait.PER_CHANNEL in node.op.traits:
            return self._per_channel(node)
        return self._reduction(node)

    def _image_of_program(self, node: Node) -> bool:
        """Note the tensor of which a node makes an image as this image with channels last. Others read the view."""
        (image,) = node.outputs
        if not (self.wanted[image] and self._graph.tensor(node.value(0)).is_contiguous and self._is_image(image)):
            return False
        self._rewriter.keep(node)
        self._store(node, image, self._rewriter.operand(node.inputs[0]))
        self._restored.add(image)
        return True

    def _convolution(self, node: Node) -> bool:
        (out,) = node.outputs
        if self._product(node):
            return True
        images = node.op.name != "conv2d_weight_grad"
        if images and self._is_image(out) and self.wanted[out]:
            return self._strided(node)
        if not any(v in self._last for v in node.reads):
            return False
        spec = self._graph.tensor(out)
        inputs = self._strided_operands(node)
        if not self._rewriter.can_write(node, inputs, (spec,)):
            return False
        (value,) = self._rewriter.new.add(node.op, inputs, node.params, (spec,), node.origin)
        self._rewriter.replace_all_uses(out, Value(value))
        return True

    def _product(self, node: Node) -> bool:
        """Add the matrix product that equals a convolution with a 1x1 kernel, if its images are stored with channels last."""
        (out,) = node.outputs
        images = [node.value(i) for i in range(_IMAGES[node.op.name])]
        spec, bound = self._graph.tensor(out), node.bound
        kernel = (
            bound["kernel"] if node.op.name == "conv2d_weight_grad" else self._graph.tensor(node.value(1)).shape[2:]
        )
        if (tuple(kernel), *(tuple(bound[name]) for name in ("stride", "padding"))) != ((1, 1), (1, 1), (0, 0)):
            return False
        if not all(v in self._last for v in images) or node.replaces:
            return False
        rows = [self._matrix(self._last[v], node) for v in images]
        if node.op.name == "conv2d_weight_grad":
            turned = self._permuted(rows[0], (1, 0), node)
            result = self._add("matmul", [turned, rows[1]], (bound["out_dtype"],), node)
            self._rewriter.replace_all_uses(out, self._add("reshape", [result], (spec.shape,), node))
            return True
        if not (self._is_image(out) and self.wanted[out]):
            return False
        weight = self._rewriter.operand(node.inputs[1])
        weight = self._add("reshape", [weight], (self._graph.tensor(node.value(1)).shape[:2],), node)
        if node.op.name == "conv2d":
            bias = node.inputs[2] if len(node.inputs) > 2 else None
            result = self._add(
                "linear", [rows[0], weight, None if bias is None else self._rewriter.operand(bias)], (), node
            )
        else:
            result = self._add("matmul", [rows[0], weight], (None,), node)
        n, c, h, w = spec.shape
        self._store(node, out, self._add("reshape", [result], ((n, h, w, c),), node))
        return True

    def _matrix(self, image: Value, node: Node) -> Value:
        """An image of shape (N, H, W, C) as a matrix, whose rows are pixels."""
        n, h, w, c = self._rewriter.tensor(image).shape
        return self._add("reshape", [image], ((n * h * w, c),), node)

    def _strided_operands(self, node: Node) -> tuple[Operand, ...]:
        """The operands in their old shapes, as views of tensors with channels last where these are stored."""
        return tuple(
            self._permuted(self._last[x.index], _SECOND, node)
            if isinstance(x, Value) and x.index in self._last
            else self._rewriter.operand(x)
            for x in node.inputs
        )

    def _strided(self, node: Node) -> bool:
        """Add a node that reads and writes images of the old shape, with the strides of channels last."""
        (out,) = node.outputs
        spec = self._graph.tensor(out)
        last = layout.channels_last(spec.dtype, spec.shape)
        inputs = self._strided_operands(node)
        if not spec.is_contiguous or not self._rewriter.can_write(node, inputs, (last,)):
            return False
        (value,) = self._rewriter.new.add(node.op, inputs, node.params, (last,), node.origin)
        self._store(node, out, self._permuted(Value(value), _LAST, node))
        return True

    def _per_channel(self, node: Node) -> bool:
        """Add a node on matrices, whose rows are pixels and whose columns are channels."""
        image = self._graph.tensor(next(v for v in node.reads if v in self._last))
        n, c, h, w = image.shape

        def matrix(x: Operand) -> Operand:
            spec = self._graph.spec_of(x)
            if not isinstance(x, Value) or not isinstance(spec, Spec) or spec.shape != image.shape:
                return self._rewriter.operand(x)
            return self._add("reshape", [self._with_channels_last(x, node)], ((n * h * w, c),), node)

        if any(self._graph.tensor(v).shape not in (image.shape, (c,)) for v in node.outputs):
            return False
        results = self._rewriter.add(node.op, [matrix(x) for x in node.inputs], node.params, node.origin)
        for v, result in zip(node.outputs, results, strict=True):
            if self._graph.tensor(v).shape == image.shape:
                self._store(node, v, self._add("reshape", [result], ((n, h, w, c),), node))
            else:
                self._rewriter.replace_all_uses(v, result)
        return True

    def _pointwise(self, node: Node) -> bool:
        """Add a node of shape (N, H, W, C), unless it would transpose all of its operands."""
        out = node.outputs[0]
        shape = self._graph.tensor(out).shape
        whole = [v for v in node.reads if self._graph.tensor(v).shape == shape and not self._is_broadcast(v)]
        if not (any(v in self._last for v in whole) if whole else self._is_image(out) and self.wanted[out]):
            return False
        operands = [self._with_channels_last(x, node) for x in node.inputs]
        for v, result in zip(
            node.outputs, self._rewriter.add(node.op, operands, node.params, node.origin), strict=True
        ):
            self._store(node, v, result)
        return True

    def _reduction(self, node: Node) -> bool:
        """Add a reduction over the permuted axes. Its result is small, and has the old order of axes."""
        (out,) = node.outputs
        before, spec = self._graph.tensor(node.value(0)), self._graph.tensor(out)
        axes = tuple(sorted(_LAST.index(axis % before.ndim) for axis in node.bound["axis"]))
        if spec.size * 2 > before.size:
            return False
        params = tuple({**node.bound, "axis": axes, "keepdims": True}.values())
        (result,) = self._rewriter.add(node.op, [self._last[node.value(0)]], params, node.origin)
        result = self._permuted(result, _SECOND, node)
        if not self._rewriter.tensor(result).is_contiguous:
            result = self._add("contiguous", [result], (), node)
        self._rewriter.replace_all_uses(out, self._add("reshape", [result], (spec.shape,), node))
        return True

    # --- forms of a value -------------------------------------------------------------------------------------------

    def _with_channels_last(self, x: Operand, node: Node) -> Operand:
        """An operand of four axes, or of fewer that broadcast, in the order (N, H, W, C)."""
        if isinstance(x, Value) and x.index in self._last:
            return self._last[x.index]
        spec, now = self._graph.spec_of(x), self._rewriter.operand(x)
        if not isinstance(spec, Spec) or spec.ndim == 0:
            return now
        if spec.ndim < 4:
            now = self._add("reshape", [now], ((*(1,) * (4 - spec.ndim), *spec.shape),), node)
        return self._permuted(now, _LAST, node)

    def _store(self, node: Node, value: int, last: Operand) -> None:
        if not isinstance(last, Value):
            raise TypeError(f"{node.op} has the result {last}; expected a value")
        self._last[value] = last
        self._origins[value] = node.place

    def _restore(self, value: int) -> None:
        """Copy a value into its old layout, once, if it is stored with channels last."""
        if value in self._last and value not in self._restored:
            self._restored.add(value)
            origin = self._origins[value]
            (view,) = self._rewriter.add(OPS["permute"], [self._last[value]], (_SECOND,), origin)
            (copy,) = self._rewriter.add(OPS["contiguous"], [view], (), origin)
            self._rewriter.replace_all_uses(value, copy)

    def _permuted(self, x: Operand, axes: tuple[int, ...], node: Node) -> Value:
        return self._add("permute", [x], (axes,), node)

    def _add(self, op: str, inputs: list[Operand], params: tuple[object, ...], node: Node) -> Value:
        (value,) = self._rewriter.add(OPS[op], inputs, params, node.origin)
        return value
