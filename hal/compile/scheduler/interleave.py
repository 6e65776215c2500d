"""Interleave the per-device schedules so that all devices make progress.

A program that uses a group of devices runs one device after the other, forward and backward. Since each device has its own
worker thread, this order hardly affects time, but it determines when collectives begin and which memory can be reused. This
pass keeps the order of each device and merges the orders as if all nodes took equally long. A collective is scheduled right
after its last operand: gradients are reduced while gradients of earlier layers are computed. A temporary gather is scheduled
once all devices use the previous one: this prefetches the parameters of the next layer, but of no more layers.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Sequence
from typing import Any

from polyhal.hal.compile.ir.graph import Graph, Node, postorder
from polyhal.hal.compile.passes.regather import is_temporary
from polyhal.hal.compile.scheduler.schedule import dependencies, live_out_roots, reorder
from polyhal.hal.ops.traits import Trait


def interleave(graph: Graph) -> Graph:
    """Return the graph with interleaved nodes of its devices; unchanged without collectives."""
    if not any(_is_collective(node) for node in graph.nodes):
        return graph
    return reorder(graph, _Merge(graph).order())


def _is_collective(node: Node) -> bool:
    return Trait.COLLECTIVE in node.op.traits


class _Merge:
    """Merge of the per-device schedules."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        count = len(graph.nodes)
        self._users: list[list[int]] = [[] for _ in range(count)]
        """Consumers of each node's results, through any views, in order."""
        self._inline = [graph.is_view(node) for node in graph.nodes]
        """Nodes that are scheduled right before their first user: views, and joins of the operands of temporary gathers."""
        for k, node in enumerate(graph.nodes):
            if not self._inline[k]:
                for source in {graph.producer_index(graph.root(v)) for v in node.reads} - {-1}:
                    self._users[source].append(k)
        needs = dependencies(graph)
        self._at_once = self._collectives_and_operands()
        """Nodes that are scheduled as soon as they are ready."""
        for k in range(count):
            if self._at_once[k] and not _is_collective(graph.nodes[k]) and self._serves_temporary(k):
                self._inline[k] = True
                for user in self._users[k]:
                    needs[user] |= needs[k]
        self._waiting: list[set[int]] = [
            set() if self._inline[k] else {n for n in nodes if not self._inline[n] or not self._feeds(n, k)}
            for k, nodes in enumerate(needs)
        ]
        """Unscheduled nodes that must precede each node."""
        self._paced: dict[int, set[int]] = {}
        """For each temporary gather the first consumers of the previous one, without its own dependencies."""
        self._keep_order_of_processes()
        self._pace()
        self._dependents: list[list[int]] = [[] for _ in range(count)]
        for k, nodes in enumerate(self._waiting):
            for n in nodes:
                self._dependents[n].append(k)

    def order(self) -> list[int]:
        """Return the indices of all nodes in their new order."""
        graph, order, done = self._graph, list[int](), set[int]()
        queues: dict[Any, deque[int]] = {}
        ready: list[int] = []
        """Heap of ready nodes that are scheduled immediately."""
        for k, node in enumerate(graph.nodes):
            if not self._inline[k]:
                if not self._at_once[k]:
                    queues.setdefault(node.device, deque()).append(k)
                elif not self._waiting[k]:
                    heapq.heappush(ready, k)
        clocks = dict.fromkeys(queues, 0)
        earliest = [0] * len(graph.nodes)
        while ready or any(queues.values()):
            if ready:
                k = heapq.heappop(ready)
                end = earliest[k]
            else:
                heads = [
                    (max(clocks[d], earliest[q[0]]), q[0], d)
                    for d, q in queues.items()
                    if q and not self._waiting[q[0]]
                ]
                if not heads:  # deadlock by pacing: devices use temporary values in different orders
                    ready += self._without_pace(done)
                    continue
                time, k, device = min(heads, key=lambda head: head[:2])
                queues[device].popleft()
                clocks[device] = end = time + 1
            written = list(postorder(k, self._producers, done))
            order += written
            for n in written:
                for dependent in self._dependents[n]:
                    earliest[dependent] = max(earliest[dependent], end)
                    if n in self._waiting[dependent]:
                        self._waiting[dependent].discard(n)
                        if self._at_once[dependent] and not self._waiting[dependent]:
                            heapq.heappush(ready, dependent)
        return order + [k for k in range(len(graph.nodes)) if k not in done]

    def _collectives_and_operands(self) -> list[bool]:
        """Return for each node whether it is a collective, or a join whose consumers are all collectives."""
        graph = self._graph
        live_out = live_out_roots(graph)
        at_once = [_is_collective(node) for node in graph.nodes]
        for k in range(len(graph.nodes) - 1, -1, -1):
            node = graph.nodes[k]
            if Trait.JOINS_OPERANDS in node.op.traits and node.outputs[0] not in live_out and self._users[k]:
                at_once[k] = all(at_once[user] for user in self._users[k])
        return at_once

    def _serves_temporary(self, k: int) -> bool:
        return all(is_temporary(self._graph.nodes[user]) for user in self._users[k])

    def _feeds(self, k: int, user: int) -> bool:
        return user in self._users[k]

    def _keep_order_of_processes(self) -> None:
        """Keep the recorded order of collectives with other processes: it must be the same in all processes."""
        shared = [k for k, node in enumerate(self._graph.nodes) if _is_collective(node) and _crosses_processes(node)]
        for before, k in itertools.pairwise(shared):
            self._waiting[k].add(before)

    def _pace(self) -> None:
        """Make each temporary gather wait for the first uses of the previous one."""
        nodes = self._graph.nodes
        gathers = [k for k, node in enumerate(nodes) if is_temporary(node) and self._users[k]]
        gathers.sort(key=lambda k: self._users[k][0])
        for before, k in itertools.pairwise(gathers):
            first: dict[Any, int] = {}
            for user in self._users[before]:
                first.setdefault(nodes[user].device, user)
            self._paced[k] = set(first.values()) - self._waiting[k]
            self._waiting[k] |= self._paced[k]

    def _without_pace(self, done: set[int]) -> list[int]:
        """Drop all pacing of gathers. Returns the gathers that are ready now, in order."""
        for k, first in self._paced.items():
            self._waiting[k] -= first
        waited = [k for k, first in self._paced.items() if first and k not in done]
        self._paced.clear()
        return sorted(k for k in waited if not self._waiting[k])

    def _producers(self, k: int) -> Sequence[int]:
        """Return the producers of a node's operands."""
        return [p for v in self._graph.nodes[k].reads if (p := self._graph.producer_index(v)) >= 0]


def _crosses_processes(node: Node) -> bool:
    communicator = node.params[1]
    return bool(communicator.size > len(communicator.devices))
