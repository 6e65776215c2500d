"""Bandwidth and latency of copies from a device."""

from __future__ import annotations

from polyhal import zeros
from polyhal.calibration.stopwatch import Stopwatch
from polyhal.devices import LinkTimes

_SMALL, _LARGE = 1 << 10, 1 << 24
"""Numbers of float32 elements."""


def link_times(stopwatch: Stopwatch) -> LinkTimes:
    """Time reads of a small and of a large tensor. The latency is the part that does not depend on size, with the wait."""
    small, large = (_read(stopwatch, n) for n in (_SMALL, _LARGE))
    bandwidth = 4 * (_LARGE - _SMALL) / max(large - small, 1e-9)
    return LinkTimes(bandwidth, max(0.0, small - 4 * _SMALL / bandwidth))


def _read(stopwatch: Stopwatch, size: int) -> float:
    x = zeros((size,), device=stopwatch.device)

    def once() -> float:
        stopwatch.device.synchronize()
        begin = stopwatch.now()
        x.numpy()
        return stopwatch.now() - begin

    once()
    return stopwatch.shortest(once)
