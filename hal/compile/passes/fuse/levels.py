"""Levels: equal nodes of independent computations, which one node on stacked operands replaces.

Nodes on equally long paths to the end of a graph do not depend on each other. Equal ones among them are a level, and a chain of
levels has one *lane* for each of the computations. A level reads another one, a value that all lanes share, or a *column* of
separate values, which have to be stacked first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from polyhal.hal.compile.ir.graph import Graph, Node, Operand, Value, operand_key
from polyhal.hal.compile.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.compile.ir.trace import trace
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.ops.batching import BatchedCall
from polyhal.hal.ops.fusion import EpiloguePattern
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.traits import Trait
from polyhal.hal.protocol import InputSpec

FEWEST = 4
"""Lanes below which launches of their own are as good."""
MAX_STACKED = 1 << 22
"""Maximum number of elements of a stacked result: launches are short compared to the products of larger ones."""
_PRODUCTS_PER_COLUMN = 2
"""Minimum number of levels of products for each column that is copied into one tensor."""

Column = tuple[int, ...]


class LaneSource(NamedTuple):
    """One operand of all nodes of a level."""

    column: Column | None
    """A value for each lane; None for an operand that all lanes share, and for a literal."""
    level: LaneLevel | None = None
    """The level with these results; None for separate values."""
    output: int = 0
    """The position among the results of each node of that level."""


@dataclass(slots=True, eq=False)
class LaneLevel:
    """Equal nodes, one for each lane."""

    nodes: tuple[int, ...]
    """Positions, lane by lane."""
    sources: tuple[LaneSource, ...]
    is_product: bool
    height: int
    graphs: dict[int, Graph] = field(default_factory=dict)
    """The ops on stacked operands, by the number of lanes."""

    @property
    def columns(self) -> set[Column]:
        """The columns that have to be stacked."""
        return {s.column for s in self.sources if s.column is not None and s.level is None}


def chains(graph: Graph) -> list[list[LaneLevel]]:
    """Return the levels of each chain that takes fewer launches with stacked operands; a chain is connected."""
    products = _products()
    heights = _heights(graph)
    counts = Counter((*_key(graph, n), heights[k]) for k, n in enumerate(graph.nodes) if n.op.name in products)
    if all(count < FEWEST for count in counts.values()):
        return []
    levels = _Search(graph, heights, products).levels
    return [chain for chain in _connected(_before_products(graph, levels)) if _is_worthwhile(graph, chain)]


def _products() -> set[str]:
    """The names of the ops that start an epilogue."""
    patterns = [op.fuses for op in OPS if isinstance(op.fuses, EpiloguePattern)]
    return {name for p in patterns for name in (p.root, *p.spellings)}


def _heights(graph: Graph) -> list[int]:
    """For each node the number of nodes on the longest path to the end."""
    heights = [0] * len(graph.nodes)
    for k in reversed(range(len(graph.nodes))):
        for v in graph.nodes[k].reads:
            made = graph.producer_index(v)
            if made >= 0:
                heights[made] = max(heights[made], heights[k] + 1)
    return heights


def _key(graph: Graph, node: Node) -> tuple[Any, ...]:
    """The facts that nodes of a level have in common."""
    operands = tuple(graph.spec_of(x) if isinstance(x, Value) else operand_key(x) for x in node.inputs)
    return (node.op.name, repr(node.params), operands, node.origin and node.origin.merge_key)


class _Search:
    """Finds levels from the start of a graph to its end: those that read at most one column of separate values."""

    def __init__(self, graph: Graph, heights: Sequence[int], products: set[str]) -> None:
        self.levels: list[LaneLevel] = []
        self._graph = graph
        self._products = products
        self._found: dict[int, tuple[LaneLevel, int, int]] = {}
        """By value: its level, lane and position among the results."""
        for height, nodes in sorted(_by_height(heights).items(), reverse=True):
            alike: dict[Any, list[int]] = {}
            for k in nodes:
                if self._may_stack(graph.nodes[k]):
                    alike.setdefault(self._key(graph.nodes[k]), []).append(k)
            for members in alike.values():
                level = self._level(members, height) if len(members) >= FEWEST else None
                if level is not None:
                    self._add(level)

    def _may_stack(self, node: Node) -> bool:
        """Return whether a node computes tensors with elements on a device that fuses ops, and nothing outlives the graph."""
        graph = self._graph
        if not can_fuse(node) or node.op.batching is None:
            return False
        specs = [graph.specs[v] for v in node.outputs]
        return all(isinstance(s, Spec) and 0 < s.size * FEWEST <= MAX_STACKED for s in specs) and not any(
            graph.is_live_out(v) for v in node.outputs
        )

    def _key(self, node: Node) -> tuple[Any, ...]:
        origins = (self._found.get(x.index) if isinstance(x, Value) else None for x in node.inputs)
        return (*_key(self._graph, node), *((id(o[0]), o[2]) if o else None for o in origins))

    def _level(self, members: list[int], height: int) -> LaneLevel | None:
        """The level of nodes with equal keys; None if they read several columns, or the device has no kernel for it."""
        nodes = [self._graph.nodes[k] for k in members]
        first = next(
            (i for i, x in enumerate(nodes[0].inputs) if isinstance(x, Value) and x.index in self._found), None
        )
        if first is not None:
            members = sorted(members, key=lambda k: self._found[self._graph.nodes[k].value(first)][1])
            nodes = [self._graph.nodes[k] for k in members]
        sources = tuple(self._source([n.inputs[i] for n in nodes]) for i in range(len(nodes[0].inputs)))
        level = LaneLevel(tuple(members), sources, nodes[0].op.name in self._products, height)
        if not any(s.column for s in sources) or len(level.columns) > 1:
            return None
        if any(not self._graph.is_tensor(c[0]) for c in level.columns):
            return None
        return level if _runs(self._graph, level) else None

    def _source(self, operands: Sequence[Any]) -> LaneSource:
        if not isinstance(operands[0], Value) or all(x == operands[0] for x in operands):
            return LaneSource(None)
        column = tuple(x.index for x in operands)
        found = self._found.get(column[0])
        if found is not None:
            level, _, output = found
            if column == tuple(self._graph.nodes[k].outputs[output] for k in level.nodes):
                return LaneSource(column, level, output)
        return LaneSource(column)

    def _add(self, level: LaneLevel) -> None:
        self.levels.append(level)
        for lane, k in enumerate(level.nodes):
            for output, v in enumerate(self._graph.nodes[k].outputs):
                self._found[v] = level, lane, output


def _by_height(heights: Sequence[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for k, height in enumerate(heights):
        found.setdefault(height, []).append(k)
    return found


# --- choosing -----------------------------------------------------------------------------------------------------------


def _before_products(graph: Graph, levels: Sequence[LaneLevel]) -> list[LaneLevel]:
    """The levels that are products, or that products of a chain depend on, and transposed results."""
    kept: list[LaneLevel] = []
    needed: set[int] = set()
    for level in reversed(levels):
        if level.is_product or id(level) in needed or _is_transposed_result(graph, level):
            kept.append(level)
            needed |= {id(s.level) for s in level.sources if s.level is not None}
    return kept[::-1]


def _is_transposed_result(graph: Graph, level: LaneLevel) -> bool:
    """Return whether a level views results in another order for pointwise ops: one copy lets these take lists of tensors."""
    nodes = [graph.nodes[k] for k in level.nodes]
    users = [user for n in nodes for user in graph.users(n.outputs[0])]
    strided = graph.is_view(nodes[0]) and not graph.tensor(nodes[0].outputs[0]).is_contiguous
    return strided and all(Trait.POINTWISE in user.op.traits for user in users)


def _connected(levels: Sequence[LaneLevel]) -> Iterator[list[LaneLevel]]:
    """Yield the levels that are connected by operands, in order."""
    chain_of: dict[int, list[LaneLevel]] = {}
    for level in levels:
        chain = [level]
        for source in level.sources:
            if source.level is not None and chain_of[id(source.level)] is not chain:
                chain = [*chain_of[id(source.level)], *chain]
                chain_of |= {id(other): chain for other in chain}
        chain_of[id(level)] = chain
    yield from {id(chain): chain for chain in chain_of.values()}.values()


def _is_worthwhile(graph: Graph, chain: Sequence[LaneLevel]) -> bool:
    """Return whether a chain has several products for each column that is copied."""
    columns = {c for level in chain for c in level.columns}
    return sum(level.is_product for level in chain) >= _PRODUCTS_PER_COLUMN * len(columns)


def largest(graph: Graph, chain: Sequence[LaneLevel]) -> int:
    """Return the number of elements of the largest result of one lane."""
    return max(graph.tensor(v).size for level in chain for v in graph.nodes[level.nodes[0]].outputs)


# --- stacked nodes ------------------------------------------------------------------------------------------------------


def stacked(graph: Graph, level: LaneLevel, lanes: int) -> Graph:
    """Return the ops that compute `lanes` nodes of a level: its inputs are the operands, those with a column stacked.

    Raises LookupError if the op has no rule for batches of such calls.
    """
    if lanes not in level.graphs:
        level.graphs[lanes] = _traced(graph, level, lanes)
    return level.graphs[lanes]


def _traced(graph: Graph, level: LaneLevel, lanes: int) -> Graph:
    node = graph.nodes[level.nodes[0]]
    specs = [_stacked_spec(graph, x, source, lanes) for x, source in zip(node.inputs, level.sources, strict=True)]

    def run(*operands: Any) -> Any:
        inputs = tuple(x if isinstance(y, Value) else y for x, y in zip(operands, node.inputs, strict=True))
        batched = tuple(source.column is not None for source in level.sources)
        rule = node.op.batching
        results = NotImplemented if rule is None else rule(BatchedCall(node.op, inputs, batched, lanes, node.bound))
        if results is NotImplemented:
            raise LookupError(f"{node.op} has no rule for batches of {batched}")
        return results

    return trace(run, specs, {}, node.device.stand_ins)


def _stacked_spec(graph: Graph, x: Operand, source: LaneSource, lanes: int) -> InputSpec | None:
    if source.level is not None:
        parts = stacked(graph, source.level, lanes)
        return parts.specs[parts.outputs[source.output]]
    spec = graph.spec_of(x) if isinstance(x, Value) else None
    return (
        contiguous(spec.dtype, (lanes, *spec.shape)) if source.column is not None and isinstance(spec, Spec) else spec
    )


def _runs(graph: Graph, level: LaneLevel) -> bool:
    """Return whether the device has kernels for stacked operands, and a lane's results are laid out as its own."""
    node, lanes = graph.nodes[level.nodes[0]], len(level.nodes)
    try:
        parts = stacked(graph, level, lanes)
    except LookupError:
        return False
    for v, own in zip(parts.outputs, graph.output_specs(node), strict=True):
        spec = parts.tensor(v)
        if (spec.dtype, spec.shape, spec.strides[1:]) != (own.dtype, (lanes, *own.shape), own.strides):
            return False
    probe = GraphRewriter.probe(parts)
    return all(
        parts.is_view(n) or n.op.regions is not None or probe.has_kernel(n.op, n.inputs, n.params, node.place)
        for n in parts.nodes
    )
