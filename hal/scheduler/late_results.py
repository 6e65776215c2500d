"""Results that wait for another device, such as the joined loss of a data-parallel step, are made last.

A device runs its nodes in the order of the graph. Where a program joins small results of several devices halfway, a device
would wait there for the others, and its own work after it would begin late, though nothing of it depends on the result.
"""

from __future__ import annotations

from polyhal.hal.ir.graph import Graph
from polyhal.hal.ops.traits import Trait
from polyhal.hal.scheduler.schedule import dependencies, reorder

_SMALL = 1 << 12
"""Bytes of a value that may be held until the end of the step."""


def put_off_results(graph: Graph) -> Graph:
    """The graph with the nodes last that receive small values from other devices and make nothing but results of them."""
    late = _late_nodes(graph)
    if not late:
        return graph
    return reorder(graph, sorted(range(len(graph.nodes)), key=lambda k: (k in late, k)))


def _late_nodes(graph: Graph) -> set[int]:
    """The nodes that wait for a transfer, or make one, and for which nothing waits but others of them."""
    needs = dependencies(graph)
    for k, node in enumerate(graph.nodes):
        needs[k] |= {p for v in node.reads if (p := graph.producer_index(v)) >= 0}  # views, too
    received = set[int]()
    """Nodes that wait for a transfer."""
    for k in range(len(graph.nodes)):
        if _is_transfer(graph, k) or not received.isdisjoint(needs[k]):
            received.add(k)
    if not received:
        return received
    updated = frozenset(graph.updates.values())
    kept = set[int]()
    """Nodes that stay, or that others which stay wait for."""
    for k in range(len(graph.nodes) - 1, -1, -1):
        if k in kept or k not in received or not _may_wait(graph, k, updated):
            kept |= needs[k]
            kept.add(k)
    return received - kept


def _is_transfer(graph: Graph, k: int) -> bool:
    traits = graph.nodes[k].op.traits
    return bool(Trait.CROSS_DEVICE & traits) and not Trait.COLLECTIVE & traits


def _may_wait(graph: Graph, k: int, updated: frozenset[int]) -> bool:
    """Whether a node changes nothing, takes no part in a collective, and neither reads nor makes large values."""
    node = graph.nodes[k]
    if node.replaces or Trait.COLLECTIVE in node.op.traits or not updated.isdisjoint(node.outputs):
        return False
    return all(graph.tensor(v).nbytes <= _SMALL for v in (*node.reads, *node.outputs) if graph.is_tensor(v))
