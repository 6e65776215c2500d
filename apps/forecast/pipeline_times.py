"""Completion times of the stages of a pipeline with the 1F1B schedule.

Source: Narayanan et al., "PipeDream", arXiv:1806.03377, and arXiv:2104.04473 for the schedule with a flush at each step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class StageTimes(NamedTuple):
    """Seconds per micro-batch of a stage."""

    forward: float
    backward: float


def finish_times(stages: Sequence[StageTimes], passes: int, transfer: float) -> list[float]:
    """Return the seconds until each stage has sent its last micro-batch back. `transfer` is the time between two stages.

    After a few micro-batches per stage, each further one adds about the time of the slowest stage, so the rest is extrapolated.
    No stage takes less than the sum of its work.
    """
    simulated = min(passes, 8 * len(stages))
    ends = _simulate(stages, simulated, transfer)
    if simulated == passes:
        return ends
    before = _simulate(stages, simulated - 1, transfer)
    return [
        max(end + (passes - simulated) * (end - last), passes * (own.forward + own.backward))
        for end, last, own in zip(ends, before, stages, strict=True)
    ]


def _simulate(stages: Sequence[StageTimes], passes: int, transfer: float) -> list[float]:
    count = len(stages)
    done: dict[tuple[int, int, bool], float] = {}
    orders = [list(_order(s, count, passes)) for s in range(count)]
    position, now = [0] * count, [0.0] * count
    remaining = 2 * passes * count
    while remaining:
        for s in range(count):
            while position[s] < len(orders[s]):
                number, back = orders[s][position[s]]
                ready = _ready(done, s, count, number, back, transfer)
                if ready is None:
                    break
                now[s] = max(now[s], ready) + (stages[s].backward if back else stages[s].forward)
                done[s, number, back] = now[s]
                position[s] += 1
                remaining -= 1
    return now


def _order(stage: int, stages: int, passes: int) -> Iterator[tuple[int, bool]]:
    """Yield the tasks of a stage: some forward passes, then alternating forward and backward passes, then backward passes."""
    ahead = min(passes, stages - stage - 1)
    for number in range(ahead):
        yield number, False
    for number in range(passes - ahead):
        yield ahead + number, False
        yield number, True
    for number in range(passes - ahead, passes):
        yield number, True


def _ready(
    done: dict[tuple[int, int, bool], float], stage: int, stages: int, number: int, back: bool, transfer: float
) -> float | None:
    """Return the time at which a stage's input arrives; None if its producer has not run."""
    if back:
        source = (stage, number, False) if stage == stages - 1 else (stage + 1, number, True)
    else:
        source = (stage - 1, number, False)
    if source[0] < 0:
        return 0.0
    end = done.get(source)
    return None if end is None else end + transfer * (source[0] != stage)
