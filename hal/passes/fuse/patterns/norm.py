"""Layer norm and root-mean-square norm over trailing axes, with scale and shift or without."""

from __future__ import annotations

from typing import NamedTuple

from polyhal.hal.ir.graph import Node, Operand, Value
from polyhal.hal.passes.fuse.patterns.reader import Match, Reader


class _Normal(NamedTuple):
    """`x` divided by the root of a mean square over so many trailing axes."""

    x: Value
    axes: int
    eps: float


def layer_norm(read: Reader, node: Node) -> Match | None:
    """`(x - mean) / sqrt(mean((x - mean)^2) + eps) * weight + bias`."""
    for product, bias in _last_operands(node, "add"):
        inner = node if product is None else read.node(product, "multiply", "divide")
        for scaled, weight in _last_operands(inner, "multiply"):
            core = inner if scaled is None else read.node(scaled, "multiply", "divide")
            found = _normal(read, core, centred=True)
            if found is not None and _fits(read, found, weight, bias):
                return Match("layer_norm", (found.x, weight, bias), (found.axes, found.eps))
    return None


def rms_norm(read: Reader, node: Node) -> Match | None:
    """`x / sqrt(mean(x^2) + eps) * weight`."""
    for scaled, weight in _last_operands(node, "multiply"):
        core = node if scaled is None else read.node(scaled, "multiply", "divide")
        found = _normal(read, core, centred=False)
        if found is not None and _fits(read, found, weight, None):
            return Match("rms_norm", (found.x, weight), (found.axes, found.eps))
    return None


def _last_operands(node: Node | None, op: str) -> list[tuple[Operand, Operand]]:
    """What a node of `op` may have been applied to, and the parameter that it added; (None, None) for no parameter."""
    found: list[tuple[Operand, Operand]] = [(None, None)]
    if node is not None and node.op.name == op:
        x, y = node.inputs
        found = [(x, y), (y, x), *found]
    return [(x, y) for x, y in found if y is None or isinstance(y, Value)]


def _normal(read: Reader, node: Node | None, *, centred: bool) -> _Normal | None:
    """The value that a node divides by the root of its own mean square."""
    if node is None:
        return None
    x, y = node.inputs
    pairs = [(x, read.argument(y, "sqrt"))] if node.op.name == "divide" else []
    if node.op.name == "multiply":
        pairs = [(a, _under_root(read, b)) for a, b in ((x, y), (y, x))]
    for value, square in pairs:
        eps, terms = read.total(square)
        if square is None or len(terms) != 1 or eps <= 0 or not isinstance(value, Value):
            continue
        found = _variance(read, value, terms[0]) if centred else _mean_square(read, value, terms[0])
        if found is not None:
            source, axes = found
            spec = read.spec(source)
            if spec is not None and axes == tuple(range(spec.ndim - len(axes), spec.ndim)):
                return _Normal(source, len(axes), eps)
    return None


def _under_root(read: Reader, x: Operand) -> Operand:
    """`y` where `x` is 1 over the root of `y`."""
    found = read.argument(x, "rsqrt")
    if found is not None:
        return found
    inverse = read.node(x, "divide")
    if inverse is not None and inverse.inputs[0] == 1:
        return read.argument(inverse.inputs[1], "sqrt")
    return read.argument(read.argument(x, "reciprocal"), "sqrt")


def _mean_square(read: Reader, value: Value, square: Operand) -> tuple[Value, tuple[int, ...]] | None:
    """The axes over which `square` is the mean of the squares of `value`."""
    found = read.mean(square)
    if found is None:
        return None
    scale, factors = read.product(found[0])
    return (value, found[1]) if scale == 1 and factors == [value, value] else None


def _variance(read: Reader, value: Value, square: Operand) -> tuple[Value, tuple[int, ...]] | None:
    """The tensor of which `value` is the distance from the mean, and `square` the variance; and the axes."""
    node = read.node(value, "subtract")
    if node is None:
        return None
    x, middle = node.inputs
    centre = read.mean(middle)
    if centre is None or centre[0] != x:
        return None
    spread = read.reduced(square, "var") or _mean_square(read, value, square)
    return centre if spread in ((x, centre[1]), (value, centre[1])) else None


def _fits(read: Reader, normal: _Normal, *parameters: Operand) -> bool:
    """Whether scale and shift have the shape of the normalised axes."""
    spec = read.spec(normal.x)
    assert spec is not None
    tail = spec.shape[spec.ndim - normal.axes :]
    found = [read.spec(p) for p in parameters if p is not None]
    return all(p is not None and p.shape == tail and p.dtype is spec.dtype for p in found)
