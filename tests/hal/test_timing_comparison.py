"""Verdicts on timings: equal kernels are never reported as different on a busy machine, and real differences are found."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from polyhal.hal.testing.tuning.comparison import compare, interleaved

RECORDED = json.loads((Path(__file__).parent / "timings_of_equal_kernels.json").read_text())
"""Timings of `softmax` and `log_softmax` with a comment changed, two builds of each side alternately, while all cores
were busy."""


class BusyMachine:
    """A simulated clock: kernel times, multiplied by the noise of a busy machine."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._slowness = self._phases()

    def _phases(self) -> Iterator[float]:
        """Yield factors of calm and slow phases, with occasional interruptions."""
        while True:
            slow = self._random.choice([1.0, 1.0, 1.6, 3.0])
            for _ in range(self._random.randint(1, 12)):
                interrupted = self._random.random() < 0.1
                yield slow * self._random.lognormvariate(0, 0.05) * (2.5 if interrupted else 1.0)

    def kernel(self, seconds: float) -> Kernel:
        """Build a kernel, whose address in memory is then fixed."""
        return Kernel(self, seconds * self._random.lognormvariate(0, 0.01))

    def elapsed(self, seconds: float) -> float:
        return seconds * next(self._slowness)


class Kernel:
    def __init__(self, machine: BusyMachine, seconds: float) -> None:
        self._machine, self._seconds = machine, seconds

    def sample(self) -> float:
        return self._machine.elapsed(self._seconds)


def speedup(seed: int, before: float, after: float) -> float:
    machine = BusyMachine(seed)
    samples = interleaved([machine.kernel(s) for s in (before, after, before, after)])
    return compare(samples[::2], samples[1::2]).speedup


def test_a_changed_comment_makes_no_difference() -> None:
    assert [compare(s[::2], s[1::2]).speedup for s in RECORDED] == [1.0] * 20


def test_equal_kernels_are_equal_on_a_busy_machine() -> None:
    assert [speedup(seed, 1e-3, 1e-3) for seed in range(200)] == [1.0] * 200


@pytest.mark.parametrize("ratio", [1.5, 1 / 1.5, 3.0])
def test_real_differences_are_found_on_a_busy_machine(ratio: float) -> None:
    found = [speedup(seed, 1e-3 * ratio, 1e-3) for seed in range(20)]
    seen = [x for x in found if x != 1.0]
    assert len(seen) >= (20 if ratio == 3.0 else 10)
    assert all((x > 1) == (ratio > 1) for x in seen)


def test_a_difference_within_the_twins_difference_is_ignored() -> None:
    calm = [[1.0] * 15, [1.2] * 15]
    assert compare(calm, [[0.9] * 15, [0.95] * 15]).speedup == 1.0
    assert compare(calm, [[0.5] * 15, [0.55] * 15]).speedup == pytest.approx(2.1, abs=0.1)


def test_less_than_three_percent_is_ignored() -> None:
    assert compare([[1.02] * 15] * 2, [[1.0] * 15] * 2) == (1.02, 1.0, 1.0)


def test_each_runner_is_timed_once_a_round_in_changing_order() -> None:
    calls: list[int] = []
    ticks = itertools.count()

    class Noting:
        def __init__(self, number: int) -> None:
            self.number = number

        def sample(self) -> float:
            calls.append(self.number)
            return float(next(ticks))

    samples = interleaved([Noting(i) for i in range(3)], 8)
    rounds = [calls[i : i + 3] for i in range(0, 24, 3)]
    assert all(sorted(r) == [0, 1, 2] for r in rounds)
    assert len({tuple(r) for r in rounds}) > 2
    assert [len(s) for s in samples] == [8, 8, 8]
