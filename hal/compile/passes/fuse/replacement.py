"""Replaces groups of nodes by fused ops: what all passes that fuse have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from polyhal.hal.compile.ir.graph import Graph, Node
from polyhal.hal.compile.ir.rewriter import GraphRewriter


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """Nodes that become one op. `write` adds that op in place of the node at `position`, one of them."""

    nodes: frozenset[int]
    position: int
    write: Callable[[GraphRewriter], None]


class Replacements:
    """Matches in one graph; no two share a node.

    `in_place` permits nodes that write in place to memory of this run. A sum of gradients is such a chain of additions: as one
    op it would keep all its terms until the last one is computed.
    """

    def __init__(self, graph: Graph, *, in_place: bool = False) -> None:
        self._graph = graph
        self._in_place = in_place
        self._matches: dict[int, Match] = {}
        self._taken: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._matches)

    def add(self, match: Match) -> None:
        """Replace the nodes of a match, which `allows` has accepted."""
        self._matches[match.position] = match
        self._taken |= match.nodes

    def allows(self, nodes: Iterable[int], results: Iterable[int]) -> bool:
        """Return whether nodes can become one: captured in equal scopes, free, and read by others through `results` only."""
        positions = set(nodes)
        first, *rest = [self._graph.nodes[k] for k in positions]
        if positions & self._taken or any(not n.merges_with(first) for n in rest):
            return False
        if any(n.replaces and not (self._in_place and self._writes_own_memory(n)) for n in (first, *rest)):
            return False
        inside = Counter(v for n in (first, *rest) for v in n.reads)
        inner = {v for n in (first, *rest) for v in n.outputs} - set(results)
        return all(self._graph.use_count(v) == inside[v] for v in inner)

    def _writes_own_memory(self, node: Node) -> bool:
        """Return whether all memory that a node writes in place was made in this run."""
        graph = self._graph
        return all(p < 0 or graph.producer(graph.root(node.value(p))) is not None for p in node.replaces)

    def applied(self) -> Graph:
        """The graph with all matches replaced."""
        rewriter = GraphRewriter(self._graph)
        for k, node in enumerate(self._graph.nodes):
            if k in self._matches:
                self._matches[k].write(rewriter)
            elif k not in self._taken:
                rewriter.keep(node)
        return rewriter.finish()
