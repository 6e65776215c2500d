"""Joins products of one input in one op, with the RMS norm before and the gate after them, where the device has a kernel.

For few tokens the launches of a decoder's layer take as long as its reads of weights: projections to queries, keys and values
become one launch, and so do the two products of a gated feed-forward network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyhal.hal.compile.ir.graph import Graph, Node, Operand, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.compile.passes.fuse.replacement import Match, Replacements
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.pointwise.fused_elementwise import GroupStep

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params, ParamValues

_JOINED = OPS["joined_linear"]
_MOST = 3
"""Maximum number of weights."""


def join_products(graph: Graph) -> Graph:
    """Replace products of one input, and norms that only they read, by joined products."""
    search = _Search(graph)
    return search.rewritten() if search.found else graph


@dataclass(frozen=True, slots=True)
class _Product:
    """A product of `x` with the transpose of `weight`, at a position in the graph."""

    position: int
    x: int
    weight: int
    others: tuple[Operand, ...] = ()
    """Operands of steps after it."""
    steps: tuple[GroupStep, ...] = ()
    out_dtype: DType | None = None
    format: str | None = None
    """Format of quantised weights."""


def _steps_and_dtype(bound: Params) -> tuple[tuple[GroupStep, ...], DType | None]:
    """Return the steps of a fused product other than the cast of its result, and the dtype of that."""
    steps, out_dtype = bound["steps"], bound["out_dtype"]
    return (() if out_dtype is not None and steps == (("cast", (0,), (out_dtype,)),) else steps), out_dtype


class _Search:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._probe = GraphRewriter.probe(graph)
        self.found = Replacements(graph)
        self._matches: dict[int, Match] = {}
        self._taken: set[int] = set()
        self._positions: dict[int, set[int]] = {}
        """Positions of the products of each input, with weights of any format."""
        products: dict[tuple[int, str | None], list[_Product]] = {}
        for k, node in enumerate(graph.nodes):
            product = self._product(k, node)
            if product is not None:
                products.setdefault((product.x, product.format), []).append(product)
                self._positions.setdefault(product.x, set()).add(k)
        for of_input in products.values():
            self._join(of_input)

    def _product(self, k: int, node: Node) -> _Product | None:
        """Return the node at `k` as a product with a weight whose rows are contiguous."""
        graph = self._graph
        if not can_fuse(node) or node.replaces:
            return None
        if node.op.name in ("quantized_matmul", "fused_quantized_matmul"):
            return self._quantized(k, node)
        if node.op.name not in ("linear", "fused_matmul"):
            return None
        x, y = node.value(0), node.value(1)
        if node.op.name == "linear":
            return _Product(k, x, y) if node.inputs[2] is None and graph.tensor(y).is_contiguous else None
        view, bound = graph.producer(y), node.bound
        if view is None or view.op.name != "permute" or bound["numbers"] or len(node.inputs) > 3:
            return None
        weight = view.value(0)
        if graph.tensor(weight).ndim != 2 or not graph.tensor(weight).is_contiguous:
            return None
        return _Product(k, x, weight, node.inputs[2:], *_steps_and_dtype(bound))

    def _quantized(self, k: int, node: Node) -> _Product | None:
        """Return the node at `k` as a product with quantised weights in tiles."""
        bound, (x, y) = node.bound, (node.value(0), node.value(1))
        if bound["transposed"] or not bound["in_tiles"] or not self._graph.tensor(y).is_contiguous:
            return None
        if node.op.name == "quantized_matmul":
            return _Product(k, x, y, format=bound["format"])
        if bound["numbers"] or len(node.inputs) > 3:
            return None
        return _Product(k, x, y, node.inputs[2:], *_steps_and_dtype(bound), bound["format"])

    # --- choice -----------------------------------------------------------------------------------------------------

    def _join(self, products: Sequence[_Product]) -> None:
        """Add matches of products of one input, with weights of one format: pairs with a gate, then the rest."""
        left = list(products)
        for gate in products:
            up = next((p for p in left if gate.others == (Value(self._result(p)),) and not p.others), None)
            if up is not None and not up.steps and self._add((gate, up), gate.position, gate.steps, None):
                left = [p for p in left if p not in (gate, up)]
        plain = [p for p in left if not p.others and not p.steps and p.out_dtype is None]
        if 2 <= len(plain) <= _MOST and self._add(tuple(plain), plain[0].position, (), None):
            return
        for p in left:
            if not p.others and not p.steps:
                self._add((p,), p.position, (), p.out_dtype)

    def _result(self, p: _Product) -> int:
        return self._graph.nodes[p.position].outputs[0]

    def _add(
        self, products: tuple[_Product, ...], position: int, steps: tuple[GroupStep, ...], out_dtype: DType | None
    ) -> bool:
        """Add a match of products, with the norm before them if possible. Return whether there is one."""
        graph = self._graph
        place = graph.nodes[position].place
        if any(graph.producer_index(p.weight) >= position for p in products):
            return False
        results = [self._result(p) for p in products][: 1 if steps else None]
        for norm in self._norms(products):
            before = graph.nodes[norm] if norm >= 0 else None
            nodes = {p.position for p in products}
            if before is not None and set(graph.user_indices(products[0].x)) <= nodes:
                nodes.add(norm)
            x, scale = (Value(products[0].x), None) if before is None else before.inputs
            weights = [Value(p.weight) for p in products]
            inputs: list[Operand] = [x, *weights, *(() if before is None else (scale,))]
            params = (None if before is None else before.bound["eps"], steps, out_dtype, products[0].format)
            if not self.found.allows(nodes, results) or not self._probe.has_kernel(_JOINED, inputs, params, place):
                continue
            self._note(Match(frozenset(nodes), position, self._writer(inputs, params, position, results)))
            return True
        return False

    def _norms(self, products: Sequence[_Product]) -> Iterator[int]:
        """Yield the position of the norm before these products, and -1 for none if there are several products.

        Others that read it have weights of another format, and compute it, too.
        """
        graph, x = self._graph, products[0].x
        k = graph.producer_index(x)
        node = graph.nodes[k] if k >= 0 else None
        if node is not None and node.op.name == "rms_norm" and node.inputs[1] is not None:
            fits = node.bound["axes"] == 1 and node.bound["out_dtype"] is None and not graph.use_count(node.outputs[1])
            if fits and set(graph.user_indices(x)) <= self._positions[x]:
                yield k
        if len(products) > 1:
            yield -1

    def _note(self, match: Match) -> None:
        self.found.add(match)
        self._matches[match.position] = match
        self._taken |= match.nodes

    # --- writing ----------------------------------------------------------------------------------------------------

    def _writer(
        self, inputs: list[Operand], params: ParamValues, position: int, results: list[int]
    ) -> Callable[[GraphRewriter], None]:
        graph = self._graph
        place = graph.nodes[position].origin

        def write(rewriter: GraphRewriter) -> None:
            (out,) = rewriter.add(_JOINED, [rewriter.operand(x) for x in inputs], params, place)
            if len(results) == 1:
                rewriter.replace_all_uses(results[0], out)
                return
            first = 0
            for v in results:
                shape = graph.tensor(v).shape
                zeros, ones = (0,) * (len(shape) - 1), (1,) * len(shape)
                (columns,) = rewriter.add(OPS["slice"], [out], ((*zeros, first), shape, ones), place)
                rewriter.replace_all_uses(v, columns)
                first += shape[-1]

        return write

    def rewritten(self) -> Graph:
        """Return the graph with all matches replaced. Views of results have the strides of the joined result."""
        graph, rewriter = self._graph, GraphRewriter(self._graph)
        for k, node in enumerate(graph.nodes):
            if k in self._matches:
                self._matches[k].write(rewriter)
            elif k in self._taken:
                continue
            elif graph.is_view(node) and self._differs(rewriter, node.inputs[0]):
                rewriter.replace(node, node.op, rewriter.operands(node), node.params)
            else:
                rewriter.keep(node)
        return rewriter.finish()

    def _differs(self, rewriter: GraphRewriter, x: Operand) -> bool:
        return isinstance(self._graph.spec_of(x), Spec) and rewriter.tensor(rewriter.operand(x)) != self._graph.spec_of(
            x
        )
