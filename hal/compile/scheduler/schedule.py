"""Scheduling: reorder a graph's nodes to lower its peak memory. No value depends on the order.

Nodes that free more memory than they allocate are hoisted, and nodes that only allocate are sunk. Optimizer steps, for example,
directly follow the gradients that they consume.

In graphs with cross-device ops the recorded order determines which work of two devices overlaps. So these ops keep their
order, and nodes are not sunk to their first user. Otherwise the micro-batches of a pipeline would run one by one, which needs
the least memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from polyhal.hal.compile.ir.graph import Graph, postorder
from polyhal.hal.compile.ir.rewriter import GraphRewriter
from polyhal.hal.compile.scheduler.liveness import peak_live_bytes
from polyhal.hal.layout import Spec
from polyhal.hal.ops.layout.host_call import HOST_CALL
from polyhal.hal.ops.traits import Trait

_LOOKAHEAD = 4
"""Maximum length of a chain of nodes, each freeing as many bytes as it allocates, that is evaluated jointly."""


def schedule(graph: Graph, inside: frozenset[int] = frozenset(), check: int | None = None) -> Graph:
    """Return the graph in the order with the lowest peak found, possibly unchanged; `inside` is as for `live_bytes`.

    Nodes that compute new values of inputs follow the nodes that decide whether the run goes on: see `deciding`.
    """
    best, least = graph, peak_live_bytes(graph, inside)
    starts = [graph] if _cross_device_ops(graph) else [graph, _sunk(graph)]
    for candidate in (_ListScheduler(start, check).run() for start in starts):
        peak = peak_live_bytes(candidate, inside)
        if peak < least:
            best, least = candidate, peak
    return best


def deciding(graph: Graph, check: int | None) -> list[int]:
    """Return the indices of the nodes that may end a run before it has any effect.

    These are Python functions, which may raise an error, and the node that computes the output `check`, if there is one.
    """
    found = [k for k, node in enumerate(graph.nodes) if node.op is HOST_CALL]
    flag = -1 if check is None else graph.producer_index(graph.root(graph.outputs[check]))
    return found if flag < 0 else [*found, flag]


def _cross_device_ops(graph: Graph) -> list[int]:
    """Return the indices of cross-device ops."""
    return [k for k, node in enumerate(graph.nodes) if Trait.CROSS_DEVICE in node.op.traits]


def reorder(graph: Graph, order: Sequence[int]) -> Graph:
    """Return the graph with its nodes in the given order."""
    rewriter = GraphRewriter(graph)
    for k in order:
        rewriter.keep(graph.nodes[k])
    return rewriter.finish()


def live_out_roots(graph: Graph) -> set[int]:
    """Return the root values of all outputs and updates."""
    return {graph.root(v) for v in graph.live_outs}


def _sunk(graph: Graph) -> Graph:
    """Return the graph with nodes that free no memory sunk to their first users.

    Nodes that overwrite values, or read inputs that the graph updates, keep their positions.
    """
    last = {graph.root(v): k for k, node in enumerate(graph.nodes) for v in node.reads}
    live_out = live_out_roots(graph)
    position = [float(k) for k in range(len(graph.nodes))]
    for k in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[k]
        roots = [graph.root(v) for v in node.reads]
        frees = any(r >= graph.inputs and r not in live_out and last[r] <= k for r in roots)
        first = min((position[user] for v in node.outputs for user in graph.user_indices(v)), default=None)
        reads_updated = any(r in graph.updates for r in roots)
        if first is not None and not (frees or reads_updated or node.replaces):
            position[k] = first
    return reorder(graph, sorted(range(len(position)), key=lambda k: (position[k], k)))


def dependencies(graph: Graph) -> list[set[int]]:
    """Return for each node the producers of its operands and the readers of values that it overwrites, both through views."""
    updated_by = {v: i for i, v in graph.updates.items()}
    readers: dict[int, list[int]] = {}
    before: list[set[int]] = []
    for k, node in enumerate(graph.nodes):
        roots = {graph.root(v) for v in node.reads}
        needs = {graph.producer_index(r) for r in roots}
        overwritten = {graph.root(node.value(p)) for p in node.replaces if p >= 0}
        overwritten |= {updated_by[v] for v in node.outputs if v in updated_by}
        for r in overwritten:
            needs.update(readers.get(r, ()))
        if not graph.is_view(node):
            for r in roots:
                readers.setdefault(r, []).append(k)
        before.append(needs - {k, -1})
    return before


class _ListScheduler:
    """Greedy list scheduler: the ready node that frees the most memory, else the first in the old order, comes next.

    Views directly precede their users.
    """

    def __init__(self, graph: Graph, check: int | None) -> None:
        self._graph = graph
        self._is_view = [graph.is_view(node) for node in graph.nodes]
        live_out = live_out_roots(graph)
        self._bytes = [
            spec.nbytes if isinstance(spec, Spec) and v >= graph.inputs and v not in live_out else 0
            for v, spec in enumerate(graph.specs)
        ]
        """Bytes of each value in the arena."""
        self._reads: list[set[int]] = [{graph.root(v) for v in node.reads} for node in graph.nodes]
        """Roots that each node reads."""
        self._users_left: dict[int, int] = {}
        """Number of unscheduled consumers of each root."""
        for k, roots in enumerate(self._reads):
            if not self._is_view[k]:
                for r in roots:
                    self._users_left[r] = self._users_left.get(r, 0) + 1
        self._waiting = dependencies(graph)
        """Unscheduled nodes that must precede each node."""
        for before, k in itertools.pairwise(_cross_device_ops(graph)):
            self._waiting[k].add(before)
        for k in deciding(graph, check):
            self._update_after(k)
        self._dependents: dict[int, list[int]] = {}
        for k, needs in enumerate(self._waiting):
            if not self._is_view[k]:
                for n in needs:
                    self._dependents.setdefault(n, []).append(k)

    def _update_after(self, check: int) -> None:
        """Let updates of inputs wait for a node that decides about them, unless it depends on them."""
        earlier = set(postorder(check, lambda k: [*self._waiting[k], *self._producers(k)], set()))
        updates = {self._graph.producer_index(self._graph.root(v)) for v in self._graph.updates.values()}
        for k in updates - earlier - {-1}:
            self._waiting[k].add(check)

    def run(self) -> Graph:
        """Return the graph in the order found."""
        ready = [k for k, needs in enumerate(self._waiting) if not needs and not self._is_view[k]]
        order: list[int] = []
        done: set[int] = set()
        while ready:
            k = min(ready, key=lambda n: (self._gain(n), n))
            ready.remove(k)
            order += postorder(k, self._producers, done)
            for r in self._reads[k]:
                self._users_left[r] -= 1
            for dependent in self._dependents.get(k, ()):
                self._waiting[dependent].discard(k)
                if not self._waiting[dependent]:
                    ready.append(dependent)
        order += [k for k in range(len(self._graph.nodes)) if k not in done]
        return reorder(self._graph, order)

    def _gain(self, k: int) -> int:
        """Return the net bytes that node `k` frees, as a negative number; 0 if it allocates as many or more.

        A node with net change 0 is evaluated jointly with its successors that become ready.
        """
        before: list[int] = []
        while len(before) < _LOOKAHEAD:
            change = self._change(k, before)
            if change:
                return min(change, 0)
            before.append(k)
            following = next((d for d in self._dependents.get(k, ()) if self._waiting[d] == {k}), None)
            if following is None:
                return 0
            k = following
        return 0

    def _change(self, k: int, before: Sequence[int]) -> int:
        """Return allocated minus freed bytes of node `k` when it runs after the nodes `before`."""
        allocated = sum(self._bytes[v] for v in self._graph.nodes[k].outputs)
        freed = (r for r in self._reads[k] if self._users_left[r] == 1 + sum(r in self._reads[b] for b in before))
        return allocated - sum(self._bytes[r] for r in freed)

    def _producers(self, k: int) -> list[int]:
        """Return the producers of a node's operands, views included."""
        producers = (self._graph.producer_index(v) for v in self._graph.nodes[k].reads)
        return [p for p in producers if p >= 0]
