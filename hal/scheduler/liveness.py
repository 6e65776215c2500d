"""Liveness: the memory that a graph's own values need at each of its steps, before they are placed in an arena."""

from __future__ import annotations

import numpy as np

from polyhal.hal.ir.graph import Graph
from polyhal.hal.scheduler.arena import LiveInterval, usage
from polyhal.hal.scheduler.buffers import assign_buffers


def peak_live_bytes(graph: Graph, inside: frozenset[int] = frozenset()) -> int:
    """The largest number of bytes live at one step, summed over devices; see `live_bytes`."""
    return int(live_bytes(graph, inside).max(initial=0))


def live_bytes(graph: Graph, inside: frozenset[int] = frozenset()) -> np.ndarray:
    """The bytes live at each step.

    Inputs and outputs have memory of their own and do not count, except the outputs whose positions are in `inside`.
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
