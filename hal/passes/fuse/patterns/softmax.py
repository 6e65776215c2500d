"""`exp(x - max) / sum` and its logarithm. Without the maximum they overflow, and are not softmax."""

from __future__ import annotations

from polyhal.hal.ir.graph import Node, Operand, Value
from polyhal.hal.passes.fuse.patterns.reader import Match, Reader


def softmax(read: Reader, node: Node) -> Match | None:
    """`e / sum(e)` with `e = exp(x - max(x))`."""
    e, below = node.inputs
    summed = read.reduced(below, "sum")
    shifted = read.argument(e, "exp")
    found = _below_maximum(read, shifted)
    if found is None or summed is None or summed != (e, found[1]):
        return None
    return Match("softmax", (found[0],), found[1])


def log_softmax(read: Reader, node: Node) -> Match | None:
    """`s - log(sum(exp(s)))` with `s = x - max(x)`."""
    shifted, right = node.inputs
    found = _below_maximum(read, shifted)
    summed = read.reduced(read.argument(right, "log"), "sum")
    if found is None or summed is None or summed[1] != found[1] or read.argument(summed[0], "exp") != shifted:
        return None
    return Match("log_softmax", (found[0],), found[1])


def _below_maximum(read: Reader, shifted: Operand) -> tuple[Value, tuple[int, ...]] | None:
    """`x` and the one axis of `x - max(x)`."""
    node = read.node(shifted, "subtract")
    if node is None:
        return None
    x, top = node.inputs
    found = read.reduced(top, "max")
    return found if found is not None and found[0] == x and len(found[1]) == 1 else None
