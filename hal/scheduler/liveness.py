"""How much memory a graph's own values need at each of its steps, before they are placed."""

from __future__ import annotations

import numpy as np

from polyhal.hal.ir.graph import Graph
from polyhal.hal.scheduler.arena import Need, profile
from polyhal.hal.scheduler.buffers import assign


def greatest(graph: Graph, inside: frozenset[int] = frozenset()) -> int:
    """The most bytes at one step, summed over devices.

    Inputs and results, which have memory of their own, are left out, but not the outputs that are numbered in `inside`.
    """
    return int(needed(graph, inside).max(initial=0))


def needed(graph: Graph, inside: frozenset[int] = frozenset()) -> np.ndarray:
    """The bytes that the graph's own values need at each step, with the outputs that are numbered in `inside`."""
    storages = assign(graph, lambda value: None)
    within = storages.holding(graph, inside)
    total = np.zeros(len(graph.nodes) + 1, np.int64)
    needs = [
        Need(s.spec.nbytes, s.first, min(s.last, len(graph.nodes)))
        for number, s in enumerate(storages.storages)
        if s.source is None and (not s.output or number in within)
    ]
    if needs:
        found = profile(needs)
        start = min(n.first for n in needs)
        total[start : start + len(found)] = found
    return total
