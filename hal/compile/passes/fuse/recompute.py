"""Computes cheap values again for groups of pointwise ops that run much later, instead of storing them until then.

Activations that programs write out leave values for the backward pass: halves, casts, squares. A group of pointwise ops would
write each of them, for another group to read after the products between both. If they follow within a few instructions from
values that are stored anyway, such as the result of the product before, the later group computes them again.
"""

from __future__ import annotations

from polyhal.hal.compile.ir.graph import Graph, Node, Operand, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.ops.traits import Trait

_MAX_CHAIN = 6
"""Nodes that compute one value again."""


def recompute_cheap(graph: Graph) -> Graph:
    """Let later groups of pointwise ops compute cheap values themselves, where that saves memory traffic."""
    plan = _Plan(graph)
    return plan.applied() if plan.again else graph


def late_nodes(graph: Graph) -> set[int]:
    """Return the positions of cheap nodes that only later groups read, and that read only what these groups can read.

    They belong to the later groups, although they could run with earlier ones.
    """
    levels = _levels(graph)
    latest = list(levels)
    candidates: list[int] = []
    for k in reversed(range(len(graph.nodes))):
        node = graph.nodes[k]
        if _is_cheap(node) and not _is_stored(graph, node.outputs[0]):
            latest[k] = min(latest[u] for u in graph.user_indices(node.outputs[0]))
            candidates += [k] * (latest[k] > levels[k])
    waiting = set(candidates)
    read = {(v, levels[k]) for k, n in enumerate(graph.nodes) if _fuses(n) and k not in waiting for v in n.reads}
    late: set[int] = set()
    for k in reversed(candidates):
        node = graph.nodes[k]
        inputs = [x for x in node.reads if graph.producer_index(x) not in late and (x, latest[k]) not in read]
        fits = sum(graph.tensor(x).nbytes for x in inputs if graph.is_tensor(x)) <= graph.tensor(node.outputs[0]).nbytes
        if fits and all(_is_stored(graph, x) and graph.root(x) not in graph.updates for x in inputs):
            late.add(k)
    return late


def _levels(graph: Graph) -> list[int]:
    """Return, for each node, how many ops that are not fused precede it on the longest path: equal within a group."""
    levels: list[int] = []
    for node in graph.nodes:
        before = [levels[p] for v in node.reads if (p := graph.producer_index(v)) >= 0]
        levels.append(max(before, default=0) + (not _fuses(node) and node.op.view is None))
    return levels


def _is_stored(graph: Graph, v: int) -> bool:
    """Return whether a value is in memory for other reasons than that a later group of pointwise ops reads it."""
    node = graph.producer(v)
    if node is None or not _fuses(node) or graph.is_live_out(v):
        return True
    return not all(map(_fuses, graph.users(v)))


class _Plan:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._levels = _levels(graph)
        self.again: dict[int, dict[int, list[int]]] = {}
        """By reader: the values that are computed again for it, each with the nodes that compute it."""
        self._read: set[tuple[int, int]] = set()
        """Values and levels of the pointwise ops that read them in memory."""
        readers = [(k, v) for k, n in enumerate(graph.nodes) if _fuses(n) for v in dict.fromkeys(n.reads)]
        kept = [(k, v) for k, v in readers if not self._is_candidate(k, v)]
        self._read.update((v, self._levels[k]) for k, v in kept)
        for k, v in readers:
            if self._is_candidate(k, v):
                self._consider(k, v)

    def _is_candidate(self, k: int, v: int) -> bool:
        """Return whether a cheap value of an earlier group is stored only for pointwise ops like node `k`."""
        graph, p = self._graph, self._graph.producer_index(v)
        return p >= 0 and _is_cheap(graph.nodes[p]) and self._levels[p] < self._levels[k] and not _is_stored(graph, v)

    def _consider(self, k: int, v: int) -> None:
        """Let node `k` compute `v` again if this reads fewer bytes than `v` has."""
        level = self._levels[k]
        chain: list[int] = []
        leaves: set[int] = set()
        if not self._collect(v, level, chain, leaves):
            return
        new = {x for x in leaves if (x, level) not in self._read}
        if sum(self._graph.tensor(x).nbytes for x in new) <= self._graph.tensor(v).nbytes:
            self.again.setdefault(k, {})[v] = chain
            self._read.update((x, level) for x in new)

    def _collect(self, v: int, level: int, chain: list[int], leaves: set[int]) -> bool:
        """Collect the nodes that compute `v` from stored values, in order. Returns False if there are too many, or none."""
        graph, p = self._graph, self._graph.producer_index(v)
        if (v, level) in self._read or _is_stored(graph, v):
            leaves.add(v)
            return graph.root(v) not in graph.updates
        if p in chain:
            return True
        if not _is_cheap(graph.nodes[p]) or len(chain) >= _MAX_CHAIN:
            return False
        found = all(self._collect(x, level, chain, leaves) for x in graph.nodes[p].reads if graph.is_tensor(x))
        chain.append(p)
        return found and len(chain) <= _MAX_CHAIN

    def applied(self) -> Graph:
        """Return the graph in which nodes are added again before those that read their results. Leaves dead nodes."""
        graph = self._graph
        rewriter = GraphRewriter(graph)
        made: dict[tuple[int, int], Operand] = {}
        for k, node in enumerate(graph.nodes):
            again = self.again.get(k)
            if again is None:
                rewriter.keep(node)
                continue
            kept = {v: rewriter.operand(Value(v)) for v in again}
            for v, chain in again.items():
                rewriter.replace_all_uses(v, self._again(rewriter, v, chain, self._levels[k], made))
            rewriter.keep(node)
            for v, operand in kept.items():
                rewriter.replace_all_uses(v, operand)
        return rewriter.finish()

    def _again(
        self, rewriter: GraphRewriter, v: int, chain: list[int], level: int, made: dict[tuple[int, int], Operand]
    ) -> Operand:
        """Add the nodes of a chain that were not added for this level yet. Returns the new value of `v`."""
        for p in chain:
            node = self._graph.nodes[p]
            (out,) = node.outputs
            if (out, level) not in made:
                inputs = tuple(
                    made.get((x.index, level), rewriter.operand(x)) if isinstance(x, Value) else x for x in node.inputs
                )
                specs = [self._graph.specs[out]]
                made[out, level] = Value(rewriter.new.add(node.op, inputs, node.params, specs, node.origin)[0])
        return made[v, level]


def _fuses(node: Node) -> bool:
    return Trait.POINTWISE in node.op.traits and can_fuse(node) and len(node.outputs) == 1


def _is_cheap(node: Node) -> bool:
    return _fuses(node) and Trait.CHEAP in node.op.traits and not node.replaces
