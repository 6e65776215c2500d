"""How fast tensors get to a device and back."""

from __future__ import annotations

from polyhal.calibration.stopwatch import Stopwatch
from polyhal.creation import zeros
from polyhal.hal.diagnostics.measurements import LinkTimes

_SMALL, _LARGE = 1 << 10, 1 << 24
"""Elements of float32."""


def link_times(stopwatch: Stopwatch) -> LinkTimes:
    """Read tensors back. What copies take whatever their size, the wait included, is the latency."""
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
