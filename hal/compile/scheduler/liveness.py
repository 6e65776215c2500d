"""Liveness: memory of a graph's intermediate values at each step, before an arena is planned."""

from __future__ import annotations

import numpy as np

from polyhal.hal.compile.ir.graph import Graph
from polyhal.hal.compile.scheduler.arena import LiveInterval, usage
from polyhal.hal.compile.scheduler.buffers import assign_buffers


def peak_live_bytes(graph: Graph, inside: frozenset[int] = frozenset()) -> int:
    """Return the maximum of live bytes over all steps, summed over devices; see `live_bytes`."""
    return int(live_bytes(graph, inside).max(initial=0))


def live_bytes(graph: Graph, inside: frozenset[int] = frozenset()) -> np.ndarray:
    """Return the live bytes at each step.

    Inputs and outputs have separate memory and do not count, except outputs at positions in `inside`.
    """
    buffers = assign_buffers(graph, lambda value: None)
    counted = buffers.holding_only(graph, inside)
    total = np.zeros(len(graph.nodes) + 1, np.int64)
    intervals = [
        LiveInterval(a.spec.nbytes, a.first, min(a.last, len(graph.nodes)))
        for number, a in enumerate(buffers.allocations)
        if a.source is None and (not a.output or number in counted)
    ]
    if intervals:
        live = usage(intervals)
        start = min(i.first for i in intervals)
        total[start : start + len(live)] = live
    return total
