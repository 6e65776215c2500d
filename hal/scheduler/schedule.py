"""The order of a graph's nodes: one in which less memory is needed at a time, where there is one.

What lets go of more memory than it takes comes as early as it can, and what only takes memory as late as it can. Optimizer
steps, for one, directly follow the gradients that they use up. No value depends on the order.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.hal.ir.graph import Graph, Node, with_needs
from polyhal.hal.ir.rewriter import Rewriting
from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import Value
from polyhal.hal.scheduler.liveness import greatest

_LOOK_AHEAD = 4


def ordered(graph: Graph, inside: frozenset[int] = frozenset()) -> Graph:
    """The graph with its nodes in the best order that is found, or as it is; `inside` is as for `greatest`."""
    best, least = graph, greatest(graph, inside)
    for found in (_Order(graph).written(), _Order(_sunk(graph)).written()):
        needed = greatest(found, inside)
        if needed < least:
            best, least = found, needed
    return best


def rearranged(graph: Graph, order: Sequence[int]) -> Graph:
    """The graph with its nodes in the given order."""
    rewriting = Rewriting(graph)
    for k in order:
        rewriting.keep(graph.nodes[k])
    return rewriting.finish()


def _sunk(graph: Graph) -> Graph:
    """Nodes that use nothing up directly before the first one that reads from them."""
    roots, _ = graph_roots(graph)
    readers: dict[int, list[int]] = {}
    last: dict[int, int] = {}
    for k, node in enumerate(graph.nodes):
        for v in slots(node):
            readers.setdefault(v, []).append(k)
            last[roots[v]] = k
    kept = {roots[v] for v in (*graph.outputs, *graph.updates.values())}
    place = [float(k) for k in range(len(graph.nodes))]
    for k in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[k]
        used_up = any(roots[v] >= graph.inputs and roots[v] not in kept and last[roots[v]] <= k for v in slots(node))
        first = min((place[r] for v in node.outputs for r in readers.get(v, ())), default=None)
        changed = any(roots[v] in graph.updates for v in slots(node))
        if first is not None and not (used_up or changed or node.replaces):
            place[k] = first
    return rearranged(graph, sorted(range(len(place)), key=lambda k: (place[k], k)))


def slots(node: Node) -> list[int]:
    """The values that a node reads."""
    return [x.index for x in node.inputs if isinstance(x, Value)]


def graph_roots(graph: Graph) -> tuple[list[int], list[bool]]:
    """For each value the one in whose memory it is a view, itself if none; for each node whether it makes a view."""
    roots = list(range(len(graph.specs)))
    views = []
    for node in graph.nodes:
        source = node.inputs[0] if node.inputs else None
        views.append(isinstance(source, Value) and graph.view_offset(node) is not None)
        if views[-1]:
            assert isinstance(source, Value)
            roots[node.outputs[0]] = roots[source.index]
    return roots, views


class _Order:
    """Repeatedly takes a node that lets go of memory, or else the next one of the old order. Views take no part."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._roots, self._views = graph_roots(graph)
        self._maker = {v: k for k, n in enumerate(graph.nodes) for v in n.outputs}
        kept = {self._roots[v] for v in (*graph.outputs, *graph.updates.values())}
        self._bytes = [
            spec.nbytes if isinstance(spec, Spec) and v >= graph.inputs and v not in kept else 0
            for v, spec in enumerate(graph.specs)
        ]
        """What a value takes from the arena."""
        self._reads: list[set[int]] = [{self._roots[v] for v in slots(n)} for n in graph.nodes]
        self._left: dict[int, int] = {}
        """How many nodes are still to read from a root."""
        for k, reads in enumerate(self._reads):
            if not self._views[k]:
                for r in reads:
                    self._left[r] = self._left.get(r, 0) + 1
        self._needs = self._dependencies()

    def _dependencies(self) -> list[set[int]]:
        """For each node those that must come before it: makers of what it reads, and readers of what it replaces."""
        graph = self._graph
        replaced_by = {v: i for i, v in graph.updates.items()}
        readers: dict[int, list[int]] = {}
        found: list[set[int]] = []
        for k, node in enumerate(graph.nodes):
            needs = {self._maker[r] for r in self._reads[k] if r in self._maker}
            replaced = {self._roots[node.inputs[p].index] for p in node.replaces if p >= 0}  # type: ignore[union-attr]
            replaced |= {replaced_by[v] for v in node.outputs if v in replaced_by}
            for r in replaced:
                needs.update(readers.get(r, ()))
            if not self._views[k]:
                for r in self._reads[k]:
                    readers.setdefault(r, []).append(k)
            found.append(needs - {k})
        return found

    def written(self) -> Graph:
        """The graph in the order found."""
        waiting: list[set[int]] = [set(n) for n in self._needs]
        followers: dict[int, list[int]] = {}
        for k, needs in enumerate(waiting):
            if not self._views[k]:
                for n in needs:
                    followers.setdefault(n, []).append(k)
        ready = [k for k, needs in enumerate(waiting) if not needs and not self._views[k]]
        order: list[int] = []
        done: set[int] = set()
        while ready:
            k = min(ready, key=lambda n: (self._gain(n, waiting, followers), n))
            ready.remove(k)
            order += with_needs(k, self._makers, done)
            for r in self._reads[k]:
                self._left[r] -= 1
            for f in followers.get(k, ()):
                waiting[f].discard(k)
                if not waiting[f]:
                    ready.append(f)
        order += [k for k in range(len(self._graph.nodes)) if k not in done]
        return rearranged(self._graph, order)

    def _gain(self, k: int, waiting: Sequence[set[int]], followers: dict[int, list[int]]) -> int:
        """The bytes, as a negative number, that node `k` lets go of; 0 if it takes as many or more.

        A node that takes as many as it lets go of is looked at together with what then can follow it.
        """
        done: list[int] = []
        while len(done) < _LOOK_AHEAD:
            change = self._change(k, done)
            if change:
                return min(change, 0)
            done.append(k)
            next_ = next((f for f in followers.get(k, ()) if waiting[f] == {k}), None)
            if next_ is None:
                return 0
            k = next_
        return 0

    def _change(self, k: int, done: Sequence[int]) -> int:
        """How many bytes more are taken after node `k` than before it, when `done` came first."""
        made = sum(self._bytes[v] for v in self._graph.nodes[k].outputs)
        reads = self._reads[k]
        return made - sum(self._bytes[r] for r in reads if self._left[r] == 1 + sum(r in self._reads[d] for d in done))

    def _makers(self, k: int) -> list[int]:
        """The nodes that make what a node reads, views among them."""
        return [self._maker[v] for v in slots(self._graph.nodes[k]) if v in self._maker]
