"""What a device's driver costs: steps of many tiny products, which take next to no time themselves."""

from __future__ import annotations

from polyhal.calibration.stopwatch import Step, Stopwatch, captured
from polyhal.hal.diagnostics.measurements import DriverTimes
from polyhal.hal.ops import FUNCTIONS
from polyhal.random import randn

_FEW, _MANY = 1, 65
"""Products in a step."""
_SIDE = 8


def driver_times(stopwatch: Stopwatch) -> DriverTimes:
    """Time a driver. What is once in a step and what each kernel takes follow from a short step and a long one."""
    few, many = (captured(_chain(stopwatch, n)) for n in (_FEW, _MANY))
    enqueue_few, enqueue_many = stopwatch.enqueue(few), stopwatch.enqueue(many)
    replay = max(0.0, (enqueue_many - enqueue_few) / (_MANY - _FEW))
    kernel = max(0.0, (stopwatch.replays(many) - stopwatch.replays(few)) / (_MANY - _FEW))
    submit = max(0.0, enqueue_few - _FEW * replay)
    return DriverTimes(submit, replay, kernel, stopwatch.turnaround(few))


def _chain(stopwatch: Stopwatch, length: int) -> Step:
    """Products that need each other's results, so that none is left out and none are merged."""
    factors = [randn(_SIDE, _SIDE, device=stopwatch.device) for _ in range(length + 1)]

    def run() -> object:
        product = factors[0]
        for factor in factors[1:]:
            product = FUNCTIONS["matmul"](product, factor)
        return product

    return run
