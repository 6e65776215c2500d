"""Two lanes of a device: computing, and collectives beside it. A collective begins when what it needs is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from polyhal.parallel.forecast.stage import PassSpan, Seconds


class Traffic(NamedTuple):
    """What collectives do beside a pass."""

    gather: Seconds | None = None
    """Before each span its parameters are gathered; None if they are there."""
    prefetch: int | None = None
    """Spans before its own at which a gather begins; None for the start of the pass."""
    reduce: Seconds | None = None
    """Gradients are reduced in buckets; None if they are left alone."""
    bucket: float = 0.0
    """Bytes of a bucket."""


class LaneTimes(NamedTuple):
    """When the lanes are done, in seconds from the start of the pass."""

    computed: float
    communicated: float
    busy: float
    """Time of all collectives."""

    @property
    def end(self) -> float:
        """When both are done."""
        return max(self.computed, self.communicated)


def run_lanes(spans: Sequence[PassSpan], traffic: Traffic) -> LaneTimes:
    """Carry spans out one after the other, with their collectives in the order in which they can begin."""
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
