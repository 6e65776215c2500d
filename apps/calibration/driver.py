"""Overhead of a device's driver, from steps of many tiny products whose execution takes almost no time."""

from __future__ import annotations

from polyhal import randn
from polyhal.calibration.stopwatch import Step, Stopwatch, captured
from polyhal.devices import DriverTimes
from polyhal.hal.ops import FUNCTIONS

_FEW, _MANY = 1, 65
"""Number of products in a short and in a long step."""
_SIDE = 8


def driver_times(stopwatch: Stopwatch) -> DriverTimes:
    """Time a driver. Costs per step and per kernel follow from a short and a long step."""
    few, many = (captured(_chain(stopwatch, n)) for n in (_FEW, _MANY))
    enqueue_few, enqueue_many = stopwatch.enqueue(few), stopwatch.enqueue(many)
    replay = max(0.0, (enqueue_many - enqueue_few) / (_MANY - _FEW))
    kernel = max(0.0, (stopwatch.replays(many) - stopwatch.replays(few)) / (_MANY - _FEW))
    submit = max(0.0, enqueue_few - _FEW * replay)
    return DriverTimes(submit, replay, kernel, stopwatch.turnaround(few))


def _chain(stopwatch: Stopwatch, length: int) -> Step:
    """Return a chain of products, each of the previous result, so that none is eliminated or fused."""
    factors = [randn(_SIDE, _SIDE, device=stopwatch.device) for _ in range(length + 1)]

    def run() -> object:
        product = factors[0]
        for factor in factors[1:]:
            product = FUNCTIONS["matmul"](product, factor)
        return product

    return run
