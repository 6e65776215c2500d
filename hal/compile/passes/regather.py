"""Free gathered parameters after the forward pass and regather them for the backward pass (FSDP `reshard_after_forward`).

A device that owns a shard of the parameters gathers the others before use. They are resharded, which means that the gathered
value is freed, once other gathered values are used. The collective is repeated before the next use, with a bitwise identical
result. Source: Zhao et al., "PyTorch FSDP", arXiv:2304.11277.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from polyhal.hal.compile.ir.graph import Graph, Node, Operand, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter
from polyhal.hal.ops.traits import Trait

_KEPT = 2
"""Gathered values that are kept at a time: the current and the previous one, as a layer may span two buckets."""


def regather(graph: Graph) -> Graph:
    """Return the graph with a separate collective for each period of use of a temporary result."""
    if not any(map(is_temporary, graph.nodes)):
        return graph
    return _Periods(graph).run()


def is_temporary(node: Node) -> bool:
    """Return whether a node is a collective whose results are freed between distant uses."""
    return Trait.COLLECTIVE in node.op.traits and bool(node.params[0].temporary)


class _Periods:
    """Division of the uses of temporary results into periods."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._gather_of: dict[int, int] = {}
        """Index of the temporary collective whose result each value views."""
        kept = set()
        for v in range(graph.inputs, len(graph.specs)):
            k = graph.producer_index(graph.root(v))
            if k >= 0 and is_temporary(graph.nodes[k]):
                self._gather_of[v] = k
                if graph.is_live_out(v):
                    kept.add(k)
        self._gather_of = {v: k for v, k in self._gather_of.items() if k not in kept}
        self._period: dict[tuple[int, int], int] = {}
        """Period in which a node uses a collective, by the indices of both."""
        self._rewriter = GraphRewriter(graph)
        self._copies: dict[tuple[int, int], Operand] = {}
        """Replacement of a value in a period."""
        self._repeats = 0

    def run(self) -> Graph:
        """Return the graph in which each period has its own collective, right before its first use."""
        graph = self._graph
        self._find_periods()
        for k, node in enumerate(graph.nodes):
            if node.outputs[0] in self._gather_of:
                continue  # written where it is used
            for v in node.reads:
                if v in self._gather_of:
                    period = self._period[k, self._gather_of[v]]
                    self._rewriter.replace_all_uses(v, self._in_period(v, period))
            self._rewriter.keep(node)
        return self._rewriter.finish()

    def _find_periods(self) -> None:
        """Number the periods of each collective. They must agree on all devices, since each device participates in all."""
        uses: dict[Any, list[tuple[int, int]]] = {}
        for k, node in enumerate(self._graph.nodes):
            if node.outputs[0] not in self._gather_of:
                for gather in dict.fromkeys(self._gather_of[v] for v in node.reads if v in self._gather_of):
                    uses.setdefault(node.device, []).append((k, gather))
        numbered = [dict(_numbered(sequence)) for sequence in uses.values()]
        orders = {tuple(dict.fromkeys((gather, n) for (_, gather), n in periods.items())) for periods in numbered}
        for periods in numbered:
            self._period |= periods if len(orders) == 1 else dict.fromkeys(periods, 0)

    def _in_period(self, value: int, period: int) -> Operand:
        """Return the replacement, in a period, of a value that views a gathered one."""
        if (value, period) not in self._copies:
            graph, k = self._graph, self._graph.producer_index(value)
            node = graph.nodes[k]
            if is_temporary(node):
                outputs = self._gathered(node, period)
            else:
                view = [self._in_period(v, period) for v in node.reads]
                outputs = self._add(node, dict(zip(node.reads, view, strict=True)), 0)
            self._copies |= {(v, period): x for v, x in zip(node.outputs, outputs, strict=True)}
        return self._copies[value, period]

    def _gathered(self, node: Node, period: int) -> list[Operand]:
        """Add a collective, and after the first period also copies of the nodes that assemble its operands."""
        if not period:
            return self._add(node, {}, 0)
        self._repeats += 1
        operands: dict[int, Operand] = {}
        for v in node.reads:
            self._repeat(v, operands)
        return self._add(node, operands, -self._repeats)

    def _repeat(self, value: int, operands: dict[int, Operand]) -> None:
        """Add a copy of a value's producer if it is a join or a view; other nodes are not repeated. Extends `operands`."""
        node = self._graph.producer(value)
        if node is None or value in operands or not (_joins(node) or self._graph.is_view(node)):
            return
        for v in node.reads:
            self._repeat(v, operands)
        operands |= dict(zip(node.outputs, self._add(node, operands, -self._repeats), strict=True))

    def _add(self, node: Node, operands: Mapping[int, Operand], repeat: int) -> list[Operand]:
        """Copy a node with other operands. The unique number `repeat` prevents merging with equal nodes; 0 for none."""
        inputs = tuple(
            operands[x.index] if isinstance(x, Value) and x.index in operands else self._rewriter.operand(x)
            for x in node.inputs
        )
        origin = node.place._replace(checkpoint=repeat) if repeat else node.origin
        specs = [self._graph.specs[v] for v in node.outputs]
        return [Value(v) for v in self._rewriter.new.add(node.op, inputs, node.params, specs, origin, node.replaces)]


def _joins(node: Node) -> bool:
    return Trait.JOINS_OPERANDS in node.op.traits


def _numbered(uses: list[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield each use, a (node, collective) pair, with its period."""
    period: dict[int, int] = {}
    recent: list[int] = []
    for k, gather in uses:
        if gather not in recent:
            period[gather] = period.get(gather, -1) + 1
        recent = [*(g for g in recent if g != gather), gather][-_KEPT:]
        yield (k, gather), period[gather]
