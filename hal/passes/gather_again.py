"""Gathers again what is needed again much later, such as parameters in the forward and in the backward pass.

A device that has a share of the parameters gathers the rest when it needs them. What it gathered is dropped when other gathered
values have been used in between, and the collective is carried out once more, with the same result to the last bit, before the
next use. Source: Zhao et al., "PyTorch FSDP", arXiv:2304.11277.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from polyhal.hal.ir.graph import Graph, Node, Operand, Value
from polyhal.hal.ir.rewriter import GraphRewriter
from polyhal.hal.ops.traits import Trait

_KEPT = 2
"""Gathered values that are kept at a time: the one in use and the one before, as a layer may lie in two buckets."""


def gather_again(graph: Graph) -> Graph:
    """The graph with one collective for each period of use of a temporary result."""
    if not any(map(is_temporary, graph.nodes)):
        return graph
    return _Periods(graph).run()


def is_temporary(node: Node) -> bool:
    """Whether a node is a collective whose results are dropped between distant uses."""
    return Trait.COLLECTIVE in node.op.traits and bool(node.params[0].temporary)


class _Periods:
    """Divides the uses of temporary results into periods."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._gather_of: dict[int, int] = {}
        """The temporary collective, by position, in whose results a value lies."""
        kept = set()
        for v in range(graph.inputs, len(graph.specs)):
            k = graph.producer_index(graph.root(v))
            if k >= 0 and is_temporary(graph.nodes[k]):
                self._gather_of[v] = k
                if graph.is_live_out(v):
                    kept.add(k)
        self._gather_of = {v: k for v, k in self._gather_of.items() if k not in kept}
        self._period: dict[tuple[int, int], int] = {}
        """The number of the period in which a node, by position, uses a collective."""
        self._rewriter = GraphRewriter(graph)
        self._copies: dict[tuple[int, int], Operand] = {}
        """What stands for a value in a period."""
        self._again = 0

    def run(self) -> Graph:
        """The graph in which each period has a collective of its own, right before its first use."""
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
        """Number the periods of each collective. They must be the same on all devices, which take part in all of them."""
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
        """What stands for a value that lies in a gathered one."""
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
        """Write a collective, and what makes its operands once more for all periods but the first."""
        if not period:
            return self._add(node, {}, 0)
        self._again += 1
        operands: dict[int, Operand] = {}
        for v in node.reads:
            self._repeat(v, operands)
        return self._add(node, operands, -self._again)

    def _repeat(self, value: int, operands: dict[int, Operand]) -> None:
        """Write once more what makes a value, unless it takes a computation. Extends `operands`."""
        node = self._graph.producer(value)
        if node is None or value in operands or not (_joins(node) or self._graph.is_view(node)):
            return
        for v in node.reads:
            self._repeat(v, operands)
        operands |= dict(zip(node.outputs, self._add(node, operands, -self._again), strict=True))

    def _add(self, node: Node, operands: Mapping[int, Operand], again: int) -> list[Operand]:
        """Copy a node with other operands. The number `again` keeps it apart from others that do the same."""
        inputs = tuple(
            operands[x.index] if isinstance(x, Value) and x.index in operands else self._rewriter.operand(x)
            for x in node.inputs
        )
        origin = node.place._replace(checkpoint=again) if again else node.origin
        specs = [self._graph.specs[v] for v in node.outputs]
        return [Value(v) for v in self._rewriter.new.add(node.op, inputs, node.params, specs, origin, node.replaces)]


def _joins(node: Node) -> bool:
    return Trait.JOINS_OPERANDS in node.op.traits


def _numbered(uses: list[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], int]]:
    """The period of each use, given as (node, collective) in order."""
    period: dict[int, int] = {}
    recent: list[int] = []
    for k, gather in uses:
        if gather not in recent:
            period[gather] = period.get(gather, -1) + 1
        recent = [*(g for g in recent if g != gather), gather][-_KEPT:]
        yield (k, gather), period[gather]
