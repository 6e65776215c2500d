"""Algebraic simplification: removes arithmetic that changes nothing, and replaces some by cheaper ops with the same result.

Every rule holds bit by bit for NaN, infinities and both zeros: `x * 1` is `x` and so is `x - 0`, but `x + 0` is not, because
`-0 + 0` is `+0`. A value replaces another only if dtype, shape and layout agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from polyhal.hal import dtypes
from polyhal.hal.compile.ir.graph import Graph, Node, Operand, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter
from polyhal.hal.dtypes import DType
from polyhal.hal.ops.opdef import OPS


def simplify_algebra(graph: Graph) -> Graph:
    """Apply the rules to every node in order, so that one rule can enable the next."""
    rewriter = GraphRewriter(graph)
    operands = _Operands(rewriter)
    for node in graph.nodes:
        rule = _RULES.get(node.op.name)
        inputs = rewriter.operands(node)
        result = rule(operands, node, inputs) if rule and not node.replaces else None
        if result is None and node.op.name in _ARITHMETIC:
            result = _with_number(operands, node, inputs)
        if isinstance(result, Value) and rewriter.new.specs[result.index] == graph.specs[node.outputs[0]]:
            rewriter.replace_all_uses(node.outputs[0], result)
        elif isinstance(result, _Instead) and _fits(rewriter, graph, node, result):
            rewriter.replace(node, OPS[result.op], result.inputs, result.params)
        else:
            rewriter.keep(node)
    return rewriter.finish()


class _Instead(NamedTuple):
    """The op that replaces a node."""

    op: str
    inputs: Sequence[Operand]
    params: tuple[Any, ...] = ()


def _fits(rewriter: GraphRewriter, graph: Graph, node: Node, instead: _Instead) -> bool:
    return rewriter.infer(OPS[instead.op], instead.inputs, instead.params) == [graph.specs[node.outputs[0]]]


class _Operands:
    """Queries of rules about operands of the new graph."""

    def __init__(self, rewriter: GraphRewriter) -> None:
        self._rewriter = rewriter

    def dtype(self, x: Operand) -> DType | None:
        spec = self._rewriter.new.spec_of(x)
        return None if spec is None else spec.dtype

    def inner(self, x: Operand, *ops: str) -> Node | None:
        """The producer of `x`, if one of the ops made it."""
        node = self._rewriter.producer(x)
        return node if node is not None and node.op.name in ops else None

    def number(self, x: Operand) -> float | None:
        """The number that `x` is or that all its elements are."""
        if isinstance(x, (bool, int, float)):
            return x
        node = self.inner(x, "full", "reshape", "broadcast_to")
        while node is not None and node.op.name != "full":
            node = self.inner(node.inputs[0], "full", "reshape", "broadcast_to")
        return None if node is None else node.bound["value"]

    def scalar(self, x: Operand, dtype: DType | None) -> Operand:
        """The number from which a tensor of a dtype and without axes is made; None for other operands."""
        node = self.inner(x, "broadcast_scalar")
        made = node is not None and (node.bound["shape"], node.bound["dtype"]) == ((), dtype)
        return node.inputs[0] if node is not None and made else None


_Inputs = tuple[Operand, ...]
_Result = Value | _Instead | None
_Rule = Callable[[_Operands, Node, _Inputs], _Result]


def _value(x: Operand) -> Value | None:
    return x if isinstance(x, Value) else None


def _multiply(operands: _Operands, node: Node, inputs: _Inputs) -> _Result:
    x, y = inputs
    if operands.number(y) == 1:
        return _value(x)
    return _value(y) if operands.number(x) == 1 else None


_ARITHMETIC = ("add", "divide", "multiply", "subtract")


def _with_number(operands: _Operands, node: Node, inputs: _Inputs) -> _Result:
    """Take a number as it is where a tensor was made of it, if the other operand alone determines the dtype."""
    for i, other in ((0, 1), (1, 0)):
        dtype = operands.dtype(inputs[other])
        if isinstance(inputs[other], Value) and dtype in (dtypes.float32, dtypes.float64):
            number = operands.scalar(inputs[i], dtype)
            if number is not None:
                found = (number, inputs[other]) if i == 0 else (inputs[other], number)
                return _Instead(node.op.name, found, node.params)
    return None


_SMALL_EXPONENT = 64
"""Bound on the exponents of exact inverses, far from the range where inverses are subnormal."""


def _divide(operands: _Operands, node: Node, inputs: _Inputs) -> _Result:
    x, y = inputs
    if operands.number(y) == 1:
        return _value(x)
    dtype = operands.dtype(x)
    if isinstance(x, Value) and isinstance(y, (int, float)) and dtype in (dtypes.float32, dtypes.float64):
        # The quotient by a power of two is the product with its inverse, which is exact.
        mantissa, exponent = math.frexp(abs(y))
        if mantissa == 0.5 and abs(exponent) < _SMALL_EXPONENT:
            return _Instead("multiply", (x, 1 / y))
    return None


def _add(operands: _Operands, node: Node, inputs: _Inputs) -> _Result:
    for x, y in (inputs, inputs[::-1]):
        if _is_neutral(operands, x, y):
            return _value(x)
        negated = operands.inner(y, "negative")
        if negated is not None and isinstance(x, Value) and operands.dtype(x) is operands.dtype(y):
            return _Instead("subtract", (x, negated.inputs[0]))
    return None


def _is_neutral(operands: _Operands, x: Operand, added: Operand) -> bool:
    """Return whether a term is a zero that changes no `x`: among floats, only -0."""
    number = operands.number(added)
    if number is None or number != 0:
        return False
    dtype = operands.dtype(x)
    return dtype is not None and (dtype.kind != "float" or math.copysign(1.0, number) < 0)


def _subtract(operands: _Operands, node: Node, inputs: _Inputs) -> _Result:
    x, y = inputs
    number = operands.number(y)
    if number is not None and number == 0 and math.copysign(1.0, number) > 0:
        return _value(x)
    negated = operands.inner(y, "negative")
    if negated is not None and isinstance(x, Value) and operands.dtype(x) is operands.dtype(y):
        return _Instead("add", (x, negated.inputs[0]))
    return None


def _involution(op: str, *kinds: str) -> _Rule:
    """An op that undoes itself, on operands of the given kinds or of any."""

    def rule(operands: _Operands, node: Node, inputs: _Inputs) -> _Result:
        inner = operands.inner(inputs[0], op)
        if inner is None:
            return None
        dtype = operands.dtype(inner.inputs[0])
        return _value(inner.inputs[0]) if not kinds or (dtype is not None and dtype.kind in kinds) else None

    return rule


def _even(op: str) -> _Rule:
    """An op that does not depend on its operand's sign."""

    def rule(operands: _Operands, node: Node, inputs: _Inputs) -> _Result:
        inner = operands.inner(inputs[0], "negative", "abs")
        return None if inner is None else _Instead(op, (inner.inputs[0],))

    return rule


def _idempotent(operands: _Operands, node: Node, inputs: _Inputs) -> _Result:
    """An op whose result on two equal operands is either of them."""
    return _value(inputs[0]) if inputs[0] == inputs[1] else None


def _where(operands: _Operands, node: Node, inputs: _Inputs) -> _Result:
    condition, x, y = inputs
    known = operands.number(condition)
    if known is not None:
        return _value(x if known else y)
    return _value(x) if x == y else None


def _cast(operands: _Operands, node: Node, inputs: _Inputs) -> _Result:
    (x,) = inputs
    target = node.bound["dtype"]
    inner = operands.inner(x, "cast")
    if inner is None:
        return _value(x)
    source = inner.inputs[0]
    first, between = operands.dtype(source), operands.dtype(x)
    if first is None or between is None or not _holds(between, first):
        return None
    return _value(source) if first is target else _Instead("cast", (source,), (target,))


_SIGNIFICANT = {dtypes.float16: 11, dtypes.bfloat16: 8, dtypes.float32: 24, dtypes.float64: 53}
"""Bits of the significand, the implicit one included."""
_EXPONENT = {dtypes.float16: 5, dtypes.bfloat16: 8, dtypes.float32: 8, dtypes.float64: 11}
"""Bits of the exponent."""


def _holds(wide: DType, narrow: DType) -> bool:
    """Return whether `wide` represents every value of `narrow` exactly."""
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


def _unchanged(operands: _Operands, node: Node, inputs: _Inputs) -> _Result:
    """Return the operand: values never change, and the outputs of the graph are separated after the passes."""
    return _value(inputs[0])


_RULES: dict[str, _Rule] = {
    "multiply": _multiply,
    "divide": _divide,
    "add": _add,
    "subtract": _subtract,
    "negative": _involution("negative"),
    "logical_not": _involution("logical_not", "bool"),
    "bitwise_invert": _involution("bitwise_invert"),
    "abs": _even("abs"),
    "square": _even("square"),
    "maximum": _idempotent,
    "minimum": _idempotent,
    "logical_and": _idempotent,
    "logical_or": _idempotent,
    "bitwise_and": _idempotent,
    "bitwise_or": _idempotent,
    "where": _where,
    "cast": _cast,
    "contiguous": _unchanged,
    "copy": _unchanged,
}
"""Identities of single ops, by the op at their root."""
