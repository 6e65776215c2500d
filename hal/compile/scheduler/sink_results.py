"""Sink small results that depend on another device, such as the combined loss of a data-parallel step.

A device runs its nodes in graph order. If a program combines small results of several devices in mid-step, the wait for the
other devices would be on the critical path of this device, although none of its later work depends on the result.
"""

from __future__ import annotations

from polyhal.hal.compile.ir.graph import Graph
from polyhal.hal.compile.scheduler.schedule import dependencies, reorder
from polyhal.hal.ops.traits import Trait

_SMALL = 1 << 12
"""Maximum bytes of a value that may stay live until the end of the step."""


def sink_results(graph: Graph) -> Graph:
    """Sink nodes that only post-process small received values into results to the end of the schedule."""
    sunk = _sinkable_nodes(graph)
    if not sunk:
        return graph
    return reorder(graph, sorted(range(len(graph.nodes)), key=lambda k: (k in sunk, k)))


def _sinkable_nodes(graph: Graph) -> set[int]:
    """Return the transfers and their dependents whose consumers, if any, can all be sunk as well."""
    needs = dependencies(graph)
    for k, node in enumerate(graph.nodes):
        needs[k] |= {p for v in node.reads if (p := graph.producer_index(v)) >= 0}  # views, too
    received = set[int]()
    """Transfers, and nodes that depend on one."""
    for k in range(len(graph.nodes)):
        if _is_transfer(graph, k) or not received.isdisjoint(needs[k]):
            received.add(k)
    if not received:
        return received
    updated = frozenset(graph.updates.values())
    kept = set[int]()
    """Nodes that stay, and their dependencies."""
    for k in range(len(graph.nodes) - 1, -1, -1):
        if k in kept or k not in received or not _may_sink(graph, k, updated):
            kept |= needs[k]
            kept.add(k)
    return received - kept


def _is_transfer(graph: Graph, k: int) -> bool:
    traits = graph.nodes[k].op.traits
    return bool(Trait.CROSS_DEVICE & traits) and not Trait.COLLECTIVE & traits


def _may_sink(graph: Graph, k: int, updated: frozenset[int]) -> bool:
    """Return whether a node can be sunk: it has no side effect, is not a collective and has small operands and results only."""
    node = graph.nodes[k]
    if node.replaces or Trait.COLLECTIVE in node.op.traits or not updated.isdisjoint(node.outputs):
        return False
    return all(graph.tensor(v).nbytes <= _SMALL for v in (*node.reads, *node.outputs) if graph.is_tensor(v))
