"""Reading a value backwards: which ops made it, whatever order and spelling its author chose."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from polyhal.hal.ir.graph import Graph, Node, Operand, Value
from polyhal.hal.layout import Spec, normalize_axes

_CLOSE = 2e-7
"""How far constants may be off, relatively: 0.7978845608 stands for the root of 2/pi, 0.798 does not."""
_HIGHEST_POWER = 4


class Match(NamedTuple):
    """The op that a formula is, of which the first result is the formula's."""

    op: str
    inputs: Sequence[Operand]
    params: tuple[Any, ...]


class Reader:
    """Questions about the values of a graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._uses = graph._used().counts
        self._numbers = {v: k for k, n in enumerate(graph.nodes) for v in n.outputs}

    def node(self, x: Operand, *ops: str) -> Node | None:
        """The node that makes `x`, if it is of one of these ops."""
        k = self._numbers.get(x.index) if isinstance(x, Value) else None
        node = None if k is None else self._graph.nodes[k]
        return node if node is not None and node.op.name in ops else None

    def spec(self, x: Operand) -> Spec | None:
        """What a tensor is; None for others."""
        spec = self._graph.spec_of(x)
        return spec if isinstance(spec, Spec) else None

    def argument(self, x: Operand, op: str) -> Operand:
        """What `op` was applied to to make `x`; None if it was not."""
        node = self.node(x, op)
        return None if node is None else node.inputs[0]

    def reduced(self, x: Operand, op: str) -> tuple[Value, tuple[int, ...]] | None:
        """The tensor and the axes of a reduction whose result `x` still has these axes, with length 1."""
        node = self.node(x, op, "reshape", "broadcast_to")
        while node is not None and node.op.name != op:
            node = self.node(node.inputs[0], op, "reshape", "broadcast_to")
        source = None if node is None else node.inputs[0]
        spec, result = self.spec(source), self.spec(x)
        if node is None or not isinstance(source, Value) or spec is None or result is None:
            return None
        bound = node.op.bind(node.params)
        axes = normalize_axes(bound["axis"], spec.ndim)
        kept = tuple(1 if a in axes else n for a, n in enumerate(spec.shape))
        # Leading axes of length 1 may be missing: broadcasting brings them back.
        missing = kept[: spec.ndim - result.ndim]
        same = result.shape in (kept, spec.shape) or (math.prod(missing) == 1 and (*missing, *result.shape) == kept)
        if bound.get("correction") or not same:
            return None
        return source, axes

    def mean(self, x: Operand) -> tuple[Value, tuple[int, ...]] | None:
        """The same for a mean, also one written as a sum divided by the number of terms."""
        found = self.reduced(x, "mean")
        if found is not None:
            return found
        scale, factors = self.product(x)
        found = self.reduced(factors[0], "sum") if len(factors) == 1 else None
        spec = None if found is None else self.spec(found[0])
        if found is None or spec is None:
            return None
        count = math.prod(spec.shape[a] for a in found[1])
        return found if close(scale * count, 1.0) else None

    def product(self, x: Operand) -> tuple[float, list[Operand]]:
        """`x` as a number times factors. What several nodes read is one factor."""
        scale = 1.0
        factors: list[Operand] = []
        pending: list[tuple[Operand, bool]] = [(x, True)]
        while pending:
            now, first = pending.pop()
            if isinstance(now, (bool, int, float)):
                scale *= now
                continue
            node = (
                self.node(now, "multiply", "negative", "divide", "square", "pow") if first or self._once(now) else None
            )
            if node is None:
                factors.append(now)
            elif node.op.name == "multiply":
                pending += [(y, False) for y in reversed(node.inputs)]
            elif node.op.name == "negative":
                scale = -scale
                pending.append((node.inputs[0], False))
            elif node.op.name == "square":
                pending += [(node.inputs[0], False)] * 2
            else:
                left, right = node.inputs
                times = _whole(right) if node.op.name == "pow" else 0
                if times:
                    pending += [(left, False)] * times
                elif node.op.name == "divide" and isinstance(right, (int, float)) and right:
                    scale /= right
                    pending.append((left, False))
                else:
                    factors.append(now)
        return scale, factors

    def total(self, x: Operand) -> tuple[float, list[Operand]]:
        """`x` as a number plus terms. What several nodes read is one term."""
        constant = 0.0
        terms: list[Operand] = []
        pending: list[tuple[Operand, bool]] = [(x, True)]
        while pending:
            now, first = pending.pop()
            if isinstance(now, (bool, int, float)):
                constant += now
                continue
            node = self.node(now, "add") if first or self._once(now) else None
            if node is None:
                terms.append(now)
            else:
                pending += [(y, False) for y in reversed(node.inputs)]
        return constant, terms

    def between(self, last: Node, match: Match) -> set[int] | None:
        """The numbers of the nodes that a match covers; None if something else reads what they make."""
        leaves = {x.index for x in match.inputs if isinstance(x, Value)}
        inside: set[int] = set()
        pending = [self._numbers[last.outputs[0]]]
        while pending:
            k = pending.pop()
            inside.add(k)
            for x in self._graph.nodes[k].inputs:
                if isinstance(x, Value) and x.index not in leaves and self._numbers.get(x.index) not in inside:
                    if x.index not in self._numbers:
                        return None
                    pending.append(self._numbers[x.index])
        read: dict[int, int] = {}
        for k in inside:
            for x in self._graph.nodes[k].inputs:
                if isinstance(x, Value):
                    read[x.index] = read.get(x.index, 0) + 1
        own = [v for k in inside for v in self._graph.nodes[k].outputs if self._graph.nodes[k] is not last]
        if any(self._graph.nodes[k].replaces for k in inside) or any(self._uses[v] != read.get(v, 0) for v in own):
            return None
        return inside

    def _once(self, x: Operand) -> bool:
        return isinstance(x, Value) and self._uses[x.index] == 1


def close(number: float, wanted: float) -> bool:
    """Whether a constant of a formula is the one that is meant."""
    return math.isclose(number, wanted, rel_tol=_CLOSE)


def _whole(x: Operand) -> int:
    """A small exponent; 0 if it is none."""
    return int(x) if isinstance(x, (int, float)) and x in range(2, _HIGHEST_POWER + 1) else 0
