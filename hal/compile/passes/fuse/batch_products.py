"""Runs chains of equal products of independent tensors as products of batches.

Muon's iteration multiplies each matrix of a model fifteen times, and a small product takes less time than its launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from polyhal.hal.compile.ir.graph import Graph, Node, NodeOrigin, Operand, Value, postorder
from polyhal.hal.compile.ir.rewriter import GraphRewriter
from polyhal.hal.compile.passes.fuse.levels import FEWEST, MAX_STACKED, Column, LaneLevel, chains, largest, stacked
from polyhal.hal.ops.opdef import OPS


def batch_products(graph: Graph) -> Graph:
    """Stack the operands of equal chains of products, on devices that have kernels for batches."""
    found = chains(graph)
    return _Batching(graph, found).run() if found else graph


class _Batch(NamedTuple):
    """Some lanes of a level, which run together."""

    level: LaneLevel
    lanes: slice

    @property
    def nodes(self) -> Column:
        """The positions of the nodes."""
        return self.level.nodes[self.lanes]


class _Batching:
    def __init__(self, graph: Graph, found: Sequence[Sequence[LaneLevel]]) -> None:
        self._graph = graph
        self._rewriter = GraphRewriter(graph)
        self._batches = [batch for chain in found for batch in _batches(graph, chain)]
        self._unit_of = {k: i for i, batch in enumerate(self._batches) for k in batch.nodes}
        """By the position of a node its batch. Nodes in no batch are units of their own, numbered after these."""
        self._unit_of |= {k: k + len(self._batches) for k in range(len(graph.nodes)) if k not in self._unit_of}
        self._read = self._read_separately()
        self._stacked: dict[Column, Operand] = {}
        """Columns of some lanes, each as one tensor."""

    def run(self) -> Graph:
        """Write batches after all of their operands, otherwise in the order of their last nodes."""
        done: set[int] = set()
        for unit in sorted(set(self._unit_of.values()), key=lambda u: self._positions(u)[-1]):
            for ready in postorder(unit, self._needs, done):
                self._write(ready)
        return self._rewriter.finish()

    def _positions(self, unit: int) -> list[int]:
        first = len(self._batches)
        return sorted(self._batches[unit].nodes) if unit < first else [unit - first]

    def _needs(self, unit: int) -> list[int]:
        made = {self._graph.producer_index(v) for k in self._positions(unit) for v in self._graph.nodes[k].reads}
        return sorted({self._unit_of[k] for k in made if k >= 0})

    def _read_separately(self) -> set[int]:
        """The results of lanes that are read by other nodes than those of the chain."""
        graph = self._graph
        read = {v for level, _ in self._batches for c in level.columns for v in c}
        for batch in self._batches:
            node = graph.nodes[batch.nodes[0]]
            shared = (x for x, s in zip(node.inputs, batch.level.sources, strict=True) if s.column is None)
            read |= {x.index for x in shared if isinstance(x, Value)}
        for unit in self._unit_of.values():
            if unit >= len(self._batches):
                read |= set(graph.nodes[self._positions(unit)[0]].reads)
        return read

    # --- writing ----------------------------------------------------------------------------------------------------

    def _write(self, unit: int) -> None:
        if unit >= len(self._batches):
            self._keep(self._graph.nodes[unit - len(self._batches)])
            return
        level, lanes = self._batches[unit]
        nodes = [self._graph.nodes[k] for k in self._batches[unit].nodes]
        inputs = [
            self._rewriter.operand(x) if source.column is None else self._column(source.column[lanes], nodes[0].place)
            for x, source in zip(nodes[0].inputs, level.sources, strict=True)
        ]
        results = self._rewriter.inline(stacked(self._graph, level, len(nodes)), inputs, nodes[0].origin)
        for i, result in enumerate(results):
            column = tuple(n.outputs[i] for n in nodes)
            self._stacked[column] = result
            read = [lane for lane, v in enumerate(column) if v in self._read]
            if read and not self._rewriter.tensor(result).is_contiguous:
                (result,) = self._rewriter.add(OPS["contiguous"], [result], (), nodes[0].place)
            for lane in read:
                self._rewriter.replace_all_uses(column[lane], self._lane(result, lane, nodes[lane].place))

    def _keep(self, node: Node) -> None:
        """Copy a node; a view of a lane has the strides and alignment of the lane, and not of the tensor that was recorded."""
        graph, rewriter = self._graph, self._rewriter
        if graph.is_view(node) and rewriter.tensor(rewriter.operand(node.inputs[0])) != graph.spec_of(node.inputs[0]):
            rewriter.replace(node, node.op, rewriter.operands(node), node.params)
        else:
            rewriter.keep(node)

    def _column(self, column: Column, place: NodeOrigin) -> Operand:
        """The values of a column as one tensor."""
        if column not in self._stacked:
            rewriter = self._rewriter
            shape = (1, *self._graph.tensor(column[0]).shape)
            rows = [rewriter.add(OPS["reshape"], [rewriter.operand(Value(v))], (shape,), place)[0] for v in column]
            (self._stacked[column],) = rewriter.add(OPS["concat"], rows, (0,), place)
        return self._stacked[column]

    def _lane(self, x: Operand, lane: int, place: NodeOrigin) -> Operand:
        """One lane of a stacked tensor, as a view."""
        rank, shape = self._rewriter.tensor(x).ndim, self._rewriter.tensor(x).shape
        region = (lane, *(0,) * (rank - 1)), (1, *shape[1:]), (1,) * rank
        (row,) = self._rewriter.add(OPS["slice"], [x], region, place)
        return self._rewriter.add(OPS["reshape"], [row], (shape[1:],), place)[0]


def _batches(graph: Graph, chain: Sequence[LaneLevel]) -> Iterator[_Batch]:
    """Yield the levels of a chain in parts that are not too large."""
    together = max(FEWEST, MAX_STACKED // largest(graph, chain))
    for level in chain:
        for start in range(0, len(level.nodes), together):
            yield _Batch(level, slice(start, start + together))
