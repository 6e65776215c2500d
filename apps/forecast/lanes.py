"""Timeline of a device with a compute stream and a communication stream that overlap.

A collective starts when its operands are ready and earlier collectives are complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from polyhal.forecast.stage import PassSpan, Seconds


class Traffic(NamedTuple):
    """Collectives that overlap with a pass."""

    gather: Seconds | None = None
    """Time of the all-gather of a span's parameters; None if they are resident."""
    prefetch: int | None = None
    """Number of spans by which a gather precedes its own span; None for the start of the pass."""
    reduce: Seconds | None = None
    """Time of the reduction of a bucket of gradients; None if gradients are not reduced."""
    bucket: float = 0.0
    """Bytes of a bucket."""


class LaneTimes(NamedTuple):
    """Completion times of both streams, in seconds from the start of the pass."""

    computed: float
    communicated: float
    busy: float
    """Total time of the collectives."""

    @property
    def end(self) -> float:
        """Time at which both streams are complete."""
        return max(self.computed, self.communicated)


def run_lanes(spans: Sequence[PassSpan], traffic: Traffic) -> LaneTimes:
    """Run spans one after the other, with their collectives in the order in which these can start."""
    now = free = busy = pending = 0.0
    arrived = [0.0] * len(spans)

    def communicate(ready: float, seconds: float) -> float:
        nonlocal free, busy
        free, busy = max(free, ready) + seconds, busy + seconds
        return free

    ahead = len(spans) if traffic.prefetch is None else traffic.prefetch
    asked = 0
    for number, span in enumerate(spans):
        while traffic.gather is not None and asked < min(len(spans), number + ahead + 1):
            arrived[asked] = communicate(now, traffic.gather(spans[asked].parameters))
            asked += 1
        start = max(now, arrived[number])
        if traffic.reduce is not None:
            for event in span.gradients:
                pending += event.nbytes
                if pending >= traffic.bucket:
                    communicate(start + event.seconds, traffic.reduce(pending))
                    pending = 0.0
        now = start + span.seconds
    if traffic.reduce is not None and pending:
        communicate(now, traffic.reduce(pending))
    return LaneTimes(now, free, busy)
