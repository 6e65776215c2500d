"""Neighbouring elementwise ops of one shape, and a reduction after them, become one op: one kernel instead of several.

Every value between two kernels is written to memory and read again; within a group it stays in registers. A group may not
need, by way of ops outside it, what it makes itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from polyhal.hal.ir.graph import Graph, Node, Operand, with_needs
from polyhal.hal.ir.rewriter import Rewriting, has_groups, uses
from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OPS, Value
from polyhal.hal.ops.pointwise.elementwise import OPERANDS
from polyhal.hal.ops.pointwise.fused_elementwise import REDUCTIONS, GroupStep

_MOST_STEPS = 48
_MOST_AGAIN = 4
"""Steps that may be done once for each element of a larger shape to save a launch, ..."""
_CHEAP = frozenset({
    "add", "subtract", "multiply", "divide", "negative", "abs", "square", "sqrt", "rsqrt", "reciprocal", "maximum", "minimum",
    "clip", "cast", "where", "less", "greater", "less_equal", "greater_equal", "equal", "not_equal", "logical_and",
    "logical_or", "logical_not",
})  # fmt: skip
"""... if they are of these ops."""
_MOST_TENSORS = 12
"""Inputs and results of a group together. Kernels take few arguments on some devices, and registers are few."""


def fuse_elementwise(graph: Graph) -> Graph:
    """Group elementwise ops, on devices that have kernels for groups."""
    return _Fusion(graph).run()


@dataclass(slots=True, eq=False)
class _Unit:
    """Nodes that run as one, by number, in order. `shape` is None for nodes that are no group."""

    nodes: list[int]
    shape: tuple[int, ...] | None
    needs: set[int] = field(default_factory=set)
    """Numbers of the units outside that it reads from."""


class _Fusion:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._uses = uses(graph)
        self._maker = {v: k for k, n in enumerate(graph.nodes) for v in n.outputs}
        self._unit_of: list[int] = []
        self._units: dict[int, _Unit] = {}

    def run(self) -> Graph:
        """Find groups, then write the graph anew in an order in which every unit follows what it needs."""
        for k, node in enumerate(self._graph.nodes):
            self._start(k, node)
        rewriting = Rewriting(self._graph)
        for unit in self._ordered():
            if len(unit.nodes) == 1 or not self._emit(rewriting, unit):
                for k in unit.nodes:
                    rewriting.keep(self._graph.nodes[k])
        return rewriting.finish()

    # --- grouping ---------------------------------------------------------------------------------------------------

    def _start(self, k: int, node: Node) -> None:
        """Give a node a unit of its own, and join it to the units that it reads from where that is possible."""
        sources = [self._unit_of[self._maker[v]] for v in _values(node) if v in self._maker]
        fusible = _is_fusible(node)
        shape = self._graph.specs[node.outputs[0]].shape if fusible else None  # type: ignore[union-attr]
        self._unit_of.append(k)
        self._units[k] = _Unit([k], shape, set(sources))
        if fusible:
            for source in sorted(set(sources), reverse=True):
                self._join(self._unit_of[self._units[source].nodes[0]] if source in self._units else source, k)
        elif node.op.name in REDUCTIONS and sources and may_end(node):
            (v,) = _values(node)
            before = self._units[sources[0]]
            if before.shape is not None and self._uses[v] == 1 and self._results(before.nodes) == [v]:
                self._merge(sources[0], k, ends=True)

    def _join(self, a: int, b: int) -> None:
        """Make one group of two where shape, device, size and order allow it."""
        b = self._unit_of[b]
        if a == b or a not in self._units:
            return
        first, second = self._units[a], self._units[b]
        if first.shape is None or second.shape is None or not self._alike(first, second):
            return
        if first.shape != second.shape and not self._is_worth_repeating(first, second):
            return
        nodes = sorted((*first.nodes, *second.nodes))
        outside = (first.needs | second.needs) - {a, b}
        if len(nodes) > _MOST_STEPS or any(self._depends(u, {a, b}) for u in outside):
            return
        if len(self._tensors(nodes)) + len(self._results(nodes)) <= _MOST_TENSORS:
            self._merge(a, b)

    def _is_worth_repeating(self, first: _Unit, second: _Unit) -> bool:
        """Whether a group of a smaller shape had better be computed for each element of the one that alone reads it."""
        ops = [self._graph.nodes[k].op.name for k in first.nodes]
        assert first.shape is not None
        assert second.shape is not None
        if len(ops) > _MOST_AGAIN or not _CHEAP.issuperset(ops) or not broadcasts(first.shape, second.shape):
            return False
        read: dict[int, int] = {}
        for k in (*first.nodes, *second.nodes):
            for v in _values(self._graph.nodes[k]):
                read[v] = read.get(v, 0) + 1
        return all(self._uses[v] == read.get(v, 0) for k in first.nodes for v in self._graph.nodes[k].outputs)

    def _merge(self, a: int, b: int, *, ends: bool = False) -> None:
        """Let unit `b` become part of `a`."""
        first, second = self._units[a], self._units.pop(b)
        first.nodes = sorted((*first.nodes, *second.nodes))
        first.needs = (first.needs | second.needs) - {a, b}
        first.shape = None if ends else second.shape
        for k in second.nodes:
            self._unit_of[k] = a
        for unit in self._units.values():
            if b in unit.needs:
                unit.needs.discard(b)
                unit.needs.add(a)

    def _alike(self, a: _Unit, b: _Unit) -> bool:
        x, y = (self._graph.nodes[u.nodes[0]].origin for u in (a, b))
        return x is not None and y is not None and x.alike == y.alike

    def _depends(self, unit: int, on: set[int]) -> bool:
        """Whether a unit reads, directly or through others, from one of `on`."""
        first = min(self._units[u].nodes[0] for u in on)
        pending, seen = [unit], {unit}
        while pending:
            needs = self._units[pending.pop()].needs
            if needs & on:
                return True
            # A unit all of whose nodes come before the first one of `on` cannot depend on it.
            found = {u for u in needs - seen if self._units[u].nodes[-1] > first}
            seen |= found
            pending += found
        return False

    def _tensors(self, nodes: Sequence[int]) -> set[int]:
        """Values from outside that the nodes read, numbers left out."""
        made = {v for k in nodes for v in self._graph.nodes[k].outputs}
        read = {v for k in nodes for v in _values(self._graph.nodes[k])}
        return {v for v in read - made if isinstance(self._graph.specs[v], Spec)}

    def _results(self, nodes: Sequence[int]) -> list[int]:
        """Values that the nodes make and something else reads."""
        inner: dict[int, int] = {}
        for k in nodes:
            for x in self._graph.nodes[k].inputs:
                if isinstance(x, Value):
                    inner[x.index] = inner.get(x.index, 0) + 1
        made = [v for k in nodes for v in self._graph.nodes[k].outputs]
        return [v for v in made if self._uses[v] > inner.get(v, 0)]

    # --- writing ----------------------------------------------------------------------------------------------------

    def _ordered(self) -> Iterator[_Unit]:
        """Units after those that they need, otherwise in the order of their last nodes."""
        done: set[int] = set()
        for number in sorted(self._units, key=lambda u: self._units[u].nodes[-1]):
            for found in with_needs(number, lambda u: sorted(self._units[u].needs), done):
                yield self._units[found]

    def _emit(self, rewriting: Rewriting, unit: _Unit) -> bool:
        """Add a group as one op. False where the device has no kernel for it."""
        nodes = [self._graph.nodes[k] for k in unit.nodes]
        ending = nodes.pop() if unit.shape is None else None
        results = self._results(unit.nodes[: len(nodes)])
        inputs: list[Operand] = []
        places: dict[Any, int] = {}
        for node in nodes:
            for x in node.inputs:
                key = _identity(x)
                if x is not None and key not in places and not (isinstance(x, Value) and self._is_made(x, unit)):
                    places[key] = len(inputs)
                    inputs.append(rewriting.operand(x))
        steps: list[GroupStep] = []
        for node in nodes:
            arguments = tuple(None if x is None else places[_identity(x)] for x in node.inputs)
            places[_identity(Value(node.outputs[0]))] = len(inputs) + len(steps)
            steps.append((node.op.name, arguments, node.params))
        reduction = None
        if ending is not None:
            bound = ending.op.bind(ending.params)
            reduction = (ending.op.name, bound["axis"], bound["keepdims"])
        params = (tuple(steps), tuple(places[_identity(Value(v))] for v in results), reduction)
        origin = nodes[0].origin
        assert origin is not None
        if not rewriting.has_kernel(OPS["fused_elementwise"], inputs, params, origin):
            return False
        made = rewriting.add(OPS["fused_elementwise"], inputs, params, origin)
        for v, slot in zip(results if ending is None else ending.outputs, made, strict=True):
            rewriting.equate(v, slot)
        return True

    def _is_made(self, x: Value, unit: _Unit) -> bool:
        return x.index in self._maker and self._maker[x.index] in unit.nodes


def _values(node: Node) -> list[int]:
    return [x.index for x in node.inputs if isinstance(x, Value)]


def _identity(x: Operand) -> Any:
    return x if isinstance(x, Value) else (type(x), repr(x))


def _is_fusible(node: Node) -> bool:
    return node.op.name in OPERANDS and has_groups(node.origin)


def broadcasts(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    """Whether a shape broadcasts to another without changing it."""
    return len(small) <= len(large) and all(n in (1, m) for n, m in zip(reversed(small), reversed(large), strict=False))


def may_end(node: Node) -> bool:
    """Whether a reduction is one that a group may end with."""
    return set(node.op.params) == {"axis", "keepdims"} and node.op.bind(node.params)["axis"] is not None
