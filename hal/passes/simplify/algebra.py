"""Arithmetic that changes nothing is left out, and some is done in a cheaper way with the same result.

Every rule holds for NaN, infinities and both zeros, bit by bit: `x * 1` is `x`, and `x - 0` is, but `x + 0` is not, because
`-0 + 0` is `+0`. A value stands for another only if dtype, shape and layout agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.ir.graph import Graph, Node, Operand
from polyhal.hal.ir.rewriter import Rewriting
from polyhal.hal.ops.opdef import OPS, Value


def simplify_algebra(graph: Graph) -> Graph:
    """Apply the rules to every node, in order, so that one may prepare the ground for the next."""
    rewriting = Rewriting(graph)
    for node in graph.nodes:
        rule = _RULES.get(node.op.name)
        found = rule(_Reader(rewriting), node, rewriting.operands(node)) if rule and not node.replaces else None
        if isinstance(found, Value) and rewriting.new.specs[found.index] == graph.specs[node.outputs[0]]:
            rewriting.equate(node.outputs[0], found)
        elif isinstance(found, _Instead) and _fits(rewriting, graph, node, found):
            (slot,) = rewriting.add(OPS[found.op], found.inputs, found.params, node.origin)
            rewriting.equate(node.outputs[0], slot)
        else:
            rewriting.keep(node)
    return rewriting.finish()


class _Instead(NamedTuple):
    """The op that takes a node's place."""

    op: str
    inputs: Sequence[Operand]
    params: tuple[Any, ...] = ()


def _fits(rewriting: Rewriting, graph: Graph, node: Node, found: _Instead) -> bool:
    return rewriting.infer(OPS[found.op], found.inputs, found.params) == [graph.specs[node.outputs[0]]]


class _Reader:
    """What rules ask about operands."""

    def __init__(self, rewriting: Rewriting) -> None:
        self._rewriting = rewriting

    def dtype(self, x: Operand) -> DType | None:
        spec = self._rewriting.new.spec_of(x)
        return None if spec is None else spec.dtype

    def inner(self, x: Operand, *ops: str) -> Node | None:
        """The node that makes `x`, if it is of one of these ops."""
        node = self._rewriting.makers.get(x.index) if isinstance(x, Value) else None
        return node if node is not None and node.op.name in ops else None

    def number(self, x: Operand) -> float | None:
        """The number that `x` is, or that it is filled with."""
        if isinstance(x, (bool, int, float)):
            return x
        node = self.inner(x, "full", "reshape", "broadcast_to")
        while node is not None and node.op.name != "full":
            node = self.inner(node.inputs[0], "full", "reshape", "broadcast_to")
        return None if node is None else node.op.bind(node.params)["value"]


_Inputs = tuple[Operand, ...]
_Found = Value | _Instead | None
_Rule = Callable[[_Reader, Node, _Inputs], _Found]


def _slot(x: Operand) -> Value | None:
    return x if isinstance(x, Value) else None


def _multiply(read: _Reader, node: Node, inputs: _Inputs) -> _Found:
    x, y = inputs
    if read.number(y) == 1:
        return _slot(x)
    return _slot(y) if read.number(x) == 1 else None


def _divide(read: _Reader, node: Node, inputs: _Inputs) -> _Found:
    x, y = inputs
    number = read.number(y)
    if number == 1:
        return _slot(x)
    dtype = read.dtype(x)
    if isinstance(x, Value) and isinstance(y, (int, float)) and dtype in (dtypes.float32, dtypes.float64):
        # The quotient by a power of two is the product with its inverse, which is exact.
        mantissa, exponent = math.frexp(abs(y))
        if mantissa == 0.5 and abs(exponent) < _SMALL_EXPONENT:
            return _Instead("multiply", (x, 1 / y))
    return None


_SMALL_EXPONENT = 64


def _add(read: _Reader, node: Node, inputs: _Inputs) -> _Found:
    for x, y in (inputs, inputs[::-1]):
        if _changes_nothing(read, x, y):
            return _slot(x)
        negated = read.inner(y, "negative")
        if negated is not None and isinstance(x, Value) and read.dtype(x) is read.dtype(y):
            return _Instead("subtract", (x, negated.inputs[0]))
    return None


def _changes_nothing(read: _Reader, x: Operand, added: Operand) -> bool:
    """Whether a term is the zero that can be added to anything: -0 beside floats."""
    number = read.number(added)
    if number is None or number != 0:
        return False
    dtype = read.dtype(x)
    return dtype is not None and (dtype.kind != "float" or math.copysign(1.0, number) < 0)


def _subtract(read: _Reader, node: Node, inputs: _Inputs) -> _Found:
    x, y = inputs
    number = read.number(y)
    if number is not None and number == 0 and math.copysign(1.0, number) > 0:
        return _slot(x)
    negated = read.inner(y, "negative")
    if negated is not None and isinstance(x, Value) and read.dtype(x) is read.dtype(y):
        return _Instead("add", (x, negated.inputs[0]))
    return None


def _undone(op: str, *kinds: str) -> _Rule:
    """An op that undoes itself, on operands of these kinds or any."""

    def rule(read: _Reader, node: Node, inputs: _Inputs) -> _Found:
        inner = read.inner(inputs[0], op)
        if inner is None:
            return None
        dtype = read.dtype(inner.inputs[0])
        return _slot(inner.inputs[0]) if not kinds or (dtype is not None and dtype.kind in kinds) else None

    return rule


def _signless(op: str) -> _Rule:
    """An op that does not see its operand's sign."""

    def rule(read: _Reader, node: Node, inputs: _Inputs) -> _Found:
        inner = read.inner(inputs[0], "negative", "abs")
        return None if inner is None else _Instead(op, (inner.inputs[0],))

    return rule


def _alike(read: _Reader, node: Node, inputs: _Inputs) -> _Found:
    """Of two equal operands either is the result."""
    return _slot(inputs[0]) if inputs[0] == inputs[1] else None


def _where(read: _Reader, node: Node, inputs: _Inputs) -> _Found:
    cond, x, y = inputs
    known = read.number(cond)
    if known is not None:
        return _slot(x if known else y)
    return _slot(x) if x == y and isinstance(x, Value) else None


def _cast(read: _Reader, node: Node, inputs: _Inputs) -> _Found:
    (x,) = inputs
    target = node.op.bind(node.params)["dtype"]
    inner = read.inner(x, "cast")
    if inner is None:
        return _slot(x)
    first, between = read.dtype(inner.inputs[0]), read.dtype(x)
    assert between is not None
    if first is None or not _holds(between, first):
        return None
    source = inner.inputs[0]
    return _slot(source) if first is target else _Instead("cast", (source,), (target,))


_SIGNIFICANT = {dtypes.float16: 11, dtypes.bfloat16: 8, dtypes.float32: 24, dtypes.float64: 53}
_EXPONENT = {dtypes.float16: 5, dtypes.bfloat16: 8, dtypes.float32: 8, dtypes.float64: 11}


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`."""
    if narrow is wide or narrow.kind == "bool":
        return True
    if wide.kind == "bool":
        return False
    if narrow.kind == "float":
        return (
            wide.kind == "float" and _SIGNIFICANT[wide] >= _SIGNIFICANT[narrow] and _EXPONENT[wide] >= _EXPONENT[narrow]
        )
    digits = narrow.bits - (narrow.kind == "int")
    if wide.kind == "float":
        return _SIGNIFICANT[wide] >= digits and 1 << (_EXPONENT[wide] - 1) > digits
    if wide.kind == "uint":
        return narrow.kind == "uint" and wide.bits >= narrow.bits
    return wide.bits - 1 >= digits


def _contiguous(read: _Reader, node: Node, inputs: _Inputs) -> _Found:
    return _slot(inputs[0])


_RULES: dict[str, _Rule] = {
    "multiply": _multiply,
    "divide": _divide,
    "add": _add,
    "subtract": _subtract,
    "negative": _undone("negative"),
    "logical_not": _undone("logical_not", "bool"),
    "bitwise_invert": _undone("bitwise_invert"),
    "abs": _signless("abs"),
    "square": _signless("square"),
    "maximum": _alike,
    "minimum": _alike,
    "logical_and": _alike,
    "logical_or": _alike,
    "bitwise_and": _alike,
    "bitwise_or": _alike,
    "where": _where,
    "cast": _cast,
    "contiguous": _contiguous,
}
