"""The Gaussian error linear unit, by erf and by tanh, in whatever order its factors come."""

from __future__ import annotations

import math

from polyhal.hal.ir.graph import Node, Operand, Value
from polyhal.hal.passes.fuse.patterns.reader import Match, Reader, close

_CUBIC = 0.044715
_ROOT_HALF = math.sqrt(0.5)
_ROOT_2_OVER_PI = math.sqrt(2 / math.pi)


def gelu(read: Reader, node: Node) -> Match | None:
    """`x / 2 * (1 + erf(x / sqrt(2)))` or `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`."""
    half, factors = read.product(Value(node.outputs[0]))
    if half != 0.5 or len(factors) != 2:
        return None
    for x, other in (factors, factors[::-1]):
        one, terms = read.total(other)
        if one != 1 or len(terms) != 1 or not isinstance(x, Value):
            continue
        if _is_scaled(read, read.argument(terms[0], "erf"), x):
            return Match("gelu", (x,), ("none",))
        if _is_cubic(read, read.argument(terms[0], "tanh"), x):
            return Match("gelu", (x,), ("tanh",))
    return None


def _is_scaled(read: Reader, inner: Operand, x: Value) -> bool:
    """`x / sqrt(2)`."""
    if inner is None:
        return False
    scale, factors = read.product(inner)
    return close(scale, _ROOT_HALF) and factors == [x]


def _is_cubic(read: Reader, inner: Operand, x: Value) -> bool:
    """`sqrt(2 / pi) * (x + 0.044715 * x^3)`, also with `x` taken out of the sum."""
    if inner is None:
        return False
    scale, factors = read.product(inner)
    power = 3
    if len(factors) == 2 and x in factors:
        factors.remove(x)
        power = 2
    if not close(scale, _ROOT_2_OVER_PI) or len(factors) != 1:
        return False
    constant, terms = read.total(factors[0])
    first = [x] if power == 3 else []
    if constant != (0 if first else 1) or any(t not in terms for t in first):
        return False
    rest = [t for t in terms if t not in first]
    cubic = read.product(rest[0]) if len(rest) == 1 else (0.0, [])
    return close(cubic[0], _CUBIC) and cubic[1] == [x] * power
