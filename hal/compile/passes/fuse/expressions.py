"""Reads the values of a graph as products and sums, whatever spelling their author chose.

`a / sqrt(b)`, `a * rsqrt(b)` and `(1 / sqrt(b)) * a` are all the product of `a` and the power -1/2 of `b`; a mean is a sum
times a number. Values are compared as functions of an index, so views that insert, remove or repeat axes make no difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from polyhal.hal.compile.ir.graph import Graph, Node, Operand, Value
from polyhal.hal.layout import normalize_axes
from polyhal.hal.ops.traits import Trait
from polyhal.hal.protocol import Number

_EXPONENTS: dict[str, tuple[float, ...]] = {
    "multiply": (1.0, 1.0),
    "divide": (1.0, -1.0),
    "negative": (1.0,),
    "square": (2.0,),
    "reciprocal": (-1.0,),
    "sqrt": (0.5,),
    "rsqrt": (-0.5,),
}
"""Exponents of the operands of products. In addition, `pow` with a small integer and `mean` read as products."""
_PRODUCTS = frozenset({*_EXPONENTS, "pow", "mean"})
_SUMS = frozenset({"add", "subtract"})
_VIEWS = frozenset({"reshape", "broadcast_to"})
_MAX_POWER = 4


class Wildcard(float):
    """A literal of a pattern that matches any number, by name."""

    name: str

    def __new__(cls, name: str) -> Wildcard:
        wildcard = super().__new__(cls, math.nan)
        wildcard.name = name
        return wildcard

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Wildcard) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


class Term(NamedTuple):
    """A value as a function of an index: for each axis of more than one element, the axis of the index, from the end."""

    value: int
    axes: tuple[int, ...]


class Factor(NamedTuple):
    """A power of a term. If the term is a mean, `summed` is the sum: the number of elements is in the scale."""

    term: Term
    exponent: float
    summed: bool = False


class ProductReading(NamedTuple):
    """A value read as a product: a number times powers of terms."""

    scale: float
    factors: list[Factor]


class SumReading(NamedTuple):
    """A value read as a sum: a number, terms, and a number that the pattern leaves open."""

    constant: float
    terms: list[tuple[float, Term]]
    """Terms with their signs."""
    wildcard: Wildcard | None = None


class Expressions:
    """The values of one graph. Those in `results` may be returned by a pattern and used in it."""

    def __init__(self, graph: Graph, results: tuple[int, ...] = ()) -> None:
        self.graph = graph
        self._results = results
        self._products: dict[Term, tuple[ProductReading, list[int]]] = {}
        self._sums: dict[Term, tuple[SumReading, list[int]]] = {}
        """First readings of terms, with the inner products or sums that they open."""

    def whole(self, value: int) -> Term:
        """A value as a function of its own index."""
        shape = self._shape(value)
        return Term(value, tuple(a - len(shape) for a, n in enumerate(shape) if n != 1))

    def operand(self, term: Term, x: Value) -> Term:
        """An operand of the pointwise node that makes `term`, as a function of the same index."""
        shape, own = self._shape(term.value), self._shape(x.index)
        axis_of = dict(zip((a - len(shape) for a, n in enumerate(shape) if n != 1), term.axes, strict=True))
        return Term(x.index, tuple(axis_of[a - len(own)] for a, n in enumerate(own) if n != 1))

    def through_view(self, term: Term) -> Term | None:
        """The operand of a view that only inserts, removes or repeats axes; None for anything else."""
        node = self.graph.producer(term.value)
        if node is None or node.op.name not in _VIEWS:
            return None
        source = Value(node.value(0))
        if node.op.name == "broadcast_to":
            return self.operand(term, source)
        old, new = (tuple(n for n in self._shape(v) if n != 1) for v in (source.index, term.value))
        return Term(source.index, term.axes) if old == new else None

    def strip(self, term: Term) -> Term:
        """The remainder of a term without such views."""
        while (inner := self.through_view(term)) is not None:
            term = inner
        return term

    def node(self, term: Term) -> Node | None:
        """The node that makes a term, behind views; None for an input."""
        return self.graph.producer(self.strip(term).value)

    def is_product(self, term: Term) -> bool:
        """Return whether a term reads as a product of other terms."""
        node = self.node(term)
        if node is None or node.op.name not in _PRODUCTS:
            return False
        return bool(_power(node)) if node.op.name == "pow" else True

    def is_sum(self, term: Term) -> bool:
        """Return whether a term reads as a sum of other terms."""
        node = self.node(term)
        return node is not None and node.op.name in _SUMS

    def products(self, term: Term) -> Iterator[ProductReading]:
        """The readings of a term as a product: factors that are products themselves may be multiplied out or not."""
        if term not in self._products:
            opened: list[int] = []
            self._products[term] = self._product(term, (), opened), opened
        product, inner = self._products[term]
        yield product
        for blocked in _subsets(inner):
            yield self._product(term, blocked, [])

    def sums(self, term: Term) -> Iterator[SumReading]:
        """The readings of a term as a sum: terms that are sums themselves may be added up or not."""
        if term not in self._sums:
            opened: list[int] = []
            self._sums[term] = self._sum(term, (), opened), opened
        total, inner = self._sums[term]
        yield total
        for blocked in _subsets(inner):
            yield self._sum(term, blocked, [])

    def _product(self, term: Term, blocked: tuple[int, ...], inner: list[int]) -> ProductReading:
        scale = 1.0
        factors: dict[tuple[Term, bool], float] = {}
        pending: list[tuple[Term | Number, float, bool]] = [(term, 1.0, True)]
        while pending:
            x, exponent, top = pending.pop()
            if not isinstance(x, Term):
                scale *= _powered(x, exponent)
                continue
            opens = self.is_product(x) and (top or (exponent.is_integer() and self._is_private(x, blocked)))
            node = self.node(x) if opens else None
            if node is None or (node.op.name in ("sqrt", "rsqrt") and abs(exponent) != 1):
                factors[x, False] = factors.get((x, False), 0.0) + exponent
                continue
            base = self.strip(x)
            if not top:
                inner.append(base.value)
            if node.op.name == "mean":
                scale *= _powered(1 / self._count(node), exponent)
                factors[base, True] = factors.get((base, True), 0.0) + exponent
                continue
            if node.op.name == "negative":
                scale *= _powered(-1, exponent)
            for y, power in zip(self.operands(base, node), _exponents(node), strict=False):
                pending.append((y, exponent * power, False))
        return ProductReading(scale, [Factor(t, e, summed) for (t, summed), e in factors.items()])

    def _sum(self, term: Term, blocked: tuple[int, ...], inner: list[int]) -> SumReading:
        constant, wildcard = 0.0, None
        terms: list[tuple[float, Term]] = []
        pending: list[tuple[Term | Number, float, bool]] = [(term, 1.0, True)]
        while pending:
            x, sign, top = pending.pop()
            if isinstance(x, Wildcard):
                wildcard = x
            elif not isinstance(x, Term):
                constant += sign * x
            elif not self.is_sum(x) or not (top or self._is_private(x, blocked)):
                terms.append((sign, x))
            else:
                base = self.strip(x)
                node = self.graph.nodes[self.graph.producer_index(base.value)]
                if not top:
                    inner.append(base.value)
                second = -sign if node.op.name == "subtract" else sign
                for y, s in zip(self.operands(base, node), (sign, second), strict=True):
                    pending.append((y, s, False))
        return SumReading(constant, terms, wildcard)

    def operands(self, term: Term, node: Node) -> list[Term | Number]:
        """The operands of the pointwise node that makes a term."""
        return [self.operand(term, x) if isinstance(x, Value) else x for x in node.inputs if x is not None]

    def reduced_axes(self, node: Node) -> tuple[int, ...]:
        """The axes over which a reduction runs, from 0."""
        return normalize_axes(node.bound["axis"], len(self._shape(node.value(0))))

    def _count(self, node: Node) -> int:
        """How many elements each result of a reduction combines."""
        shape = self._shape(node.value(0))
        return max(math.prod(shape[a] for a in self.reduced_axes(node)), 1)

    def _is_private(self, term: Term, blocked: tuple[int, ...]) -> bool:
        """Return whether only one node reads a term, so that nothing else needs its value."""
        while self._uses(term.value) == 1 and term.value not in blocked:
            inner = self.through_view(term)
            if inner is None:
                return True
            term = inner
        return False

    def _uses(self, value: int) -> int:
        return self.graph.use_count(value) - self._results.count(value)

    def _shape(self, value: int) -> tuple[int, ...]:
        spec = self.graph.specs[value]
        return () if spec is None else spec.shape


def root_kind(node: Node) -> str:
    """Properties that the last nodes of a pattern and of a match have in common."""
    return "product" if node.op.name in _PRODUCTS else "sum" if node.op.name in _SUMS else node.op.name


def kind_of(node: Node) -> str:
    """Common properties of patterns and graphs: the op, or one word for ops that are different spellings."""
    name = node.op.name
    if name in ("sqrt", "rsqrt"):
        return "sqrt"
    if name == "mean":
        return "sum"
    return "" if name in _PRODUCTS or name in _SUMS or name in _VIEWS else name


def is_reduction(node: Node) -> bool:
    """Return whether a node combines elements over `axis`."""
    return Trait.FUSIBLE_REDUCTION in node.op.traits or node.op.family == "reduction"


def _exponents(node: Node) -> tuple[float, ...]:
    return (float(_power(node)),) if node.op.name == "pow" else _EXPONENTS[node.op.name]


def _power(node: Node) -> int:
    """A small integer exponent; 0 for any other."""
    x: Operand = node.inputs[1]
    return int(x) if isinstance(x, (int, float)) and x in range(2, _MAX_POWER + 1) else 0


def _powered(x: Number, exponent: float) -> float:
    """A power of a literal; NaN, which matches nothing, where there is none."""
    try:
        return float(x**exponent)
    except (ZeroDivisionError, OverflowError, TypeError):
        return math.nan


def _subsets(values: list[int]) -> Iterator[tuple[int, ...]]:
    """Each value by itself, then all of them."""
    for v in values:
        yield (v,)
    if len(values) > 1:
        yield tuple(values)
