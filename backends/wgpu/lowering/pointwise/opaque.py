"""Groups of elementwise ops with the values of eager ops, where compilers may rewrite sums.

WGSL compilers may assume that numbers are finite, and may reassociate sums (WGSL, "Differences from IEEE-754" and
"Reassociation and Fusion"). Some replace x - x and (x + y) - x by 0 and y, also if x is infinite, x * y + x * z by
x * (y + z), and (a * b + c * d) + e by a * b + (c * d + e), in which a large product absorbs e. The operands of an eager
op are elements of memory, about which a compiler has no assumptions. In a group an operand of such a sum is made opaque:
its bits are combined by XOR with a parameter, which is 0 at each launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from polyhal.backends.common.codegen.elementwise import ExpressionStep

_SHARED = {"add": 1, "subtract": 1, "lerp": 0, "addcmul": 0, "addcdiv": 0}
"""The ops that are sums, and the position of the operand that is made opaque if another one depends on the same input."""
_PRODUCTS = frozenset({"multiply", "square"})
_WITH_A_PRODUCT = frozenset({"addcmul", "addcdiv"})
_COPIES = frozenset({"negative", "positive", "cast"})


@dataclass(frozen=True, slots=True)
class _Value:
    """Facts about a value of a group."""

    number: int
    """Number among the values of the steps that are returned."""
    sources: frozenset[int]
    """The inputs of the group that it depends on."""
    products: int = 0
    """1 for a product, 2 for a sum of two products, 0 for others."""


def with_opaque_operands(steps: Sequence[ExpressionStep], inputs: int) -> tuple[list[ExpressionStep], list[int]]:
    """Return steps whose sums are not rewritten, and the number of each value among theirs.

    Values below `inputs` are inputs of the group. An operand becomes opaque if it is a sum of two products, or if another
    operand depends on an input that it depends on. Most sums have no such operand, and stay as they are.
    """
    written: list[ExpressionStep] = []
    values = [_Value(i, frozenset((i,))) for i in range(inputs)]
    for step in steps:
        operands = [values[a] for a in step.arguments]
        arguments = [o.number for o in operands]
        for position in _exposed(step, operands):
            written.append(ExpressionStep("opaque", (arguments[position],), step.dtype, (0.0,)))
            arguments[position] = inputs + len(written) - 1
        written.append(replace(step, arguments=tuple(arguments)))
        sources = frozenset[int]().union(*(o.sources for o in operands))
        values.append(_Value(inputs + len(written) - 1, sources, _products(step.op, operands)))
    return written, [v.number for v in values]


def _exposed(step: ExpressionStep, operands: Sequence[_Value]) -> list[int]:
    """Return the positions of the operands through which a compiler could rewrite a step."""
    if step.op not in _SHARED or not step.dtype.is_floating_point:
        return []
    shared = _SHARED[step.op]
    others = (o.sources for i, o in enumerate(operands) if i != shared)
    is_shared = not operands[shared].sources.isdisjoint(frozenset[int]().union(*others))
    return [i for i, o in enumerate(operands) if o.products == 2 or (i == shared and is_shared)]


def _products(op: str, operands: Sequence[_Value]) -> int:
    """Return the number of products that the value of an op is the sum of: 1, 2, or 0 for other values."""
    if op in _PRODUCTS:
        return 1
    if op in _COPIES:
        return operands[0].products
    terms = operands[:1] if op in _WITH_A_PRODUCT else operands
    return 2 if op in _SHARED and all(o.products == 1 for o in terms) else 0
