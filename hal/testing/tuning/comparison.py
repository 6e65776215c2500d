"""Comparison of the speed of two kernels by timings on a busy machine.

Three effects make equal kernels look different. A busy machine slows down for a while: timings are interleaved, in a
different order each round, and a sign test counts the wins of each side. The addresses of a kernel's memory and code
may be unfavourable for the life of a process: each side is built and timed twice, and a difference counts only if it
exceeds the difference between the twins. And small differences are irrelevant: differences below 3 % are not reported.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from typing import NamedTuple, Protocol

_CHANCE = 0.005
"""Significance level: of 21 rounds, 17 must agree."""
_SMALLEST = 1.03
"""Minimum speedup, or slowdown, that is reported."""
ROUNDS = 21
TWINS = 2
"""Number of builds of each side."""


class Timed(Protocol):
    """Interface of work that can be timed."""

    def sample(self) -> float:
        """Return seconds per call."""
        ...


class Comparison(NamedTuple):
    """Seconds per call of two sides, at the lower quartile, which is robust against other load; and the verdict."""

    before: float
    after: float
    speedup: float
    """Median ratio; 1.0 if no difference was found."""


def interleaved(runners: Sequence[Timed], rounds: int = ROUNDS) -> list[list[float]]:
    """Time each runner once per round, so that a slow phase of the machine affects all runners equally.

    The order changes from round to round: earlier work may leave caches and clocks in another state.
    """
    order = random.Random(rounds)
    positions = list(range(len(runners)))
    samples: list[list[float]] = [[] for _ in runners]
    for _ in range(rounds):
        order.shuffle(positions)
        for i in positions:
            samples[i].append(runners[i].sample())
    return samples


def significant_speedup(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the median ratio of interleaved timings, round by round; 1.0 if chance may explain it.

    This is a sign test: if both were equally fast, each would win half of the rounds. The winner must win so many
    rounds that a fair coin would do so with a probability below `_CHANCE`.
    """
    ratios = _ratios(before, after)
    wins = max(sum(r > 1 for r in ratios), sum(r < 1 for r in ratios))
    likely = sum(math.comb(len(ratios), k) for k in range(wins, len(ratios) + 1)) / 2 ** len(ratios) >= _CHANCE
    return 1.0 if likely else statistics.median(ratios)


def compare(before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]) -> Comparison:
    """Compare two sides by the interleaved timings of each side's twins.

    A difference is reported if each twin of one side is significantly faster than each twin of the other, by more than
    the twins differ, and by at least 3 %.
    """
    first, second = (statistics.quantiles([x for s in side for x in s])[0] for side in (before, after))
    speedups = [math.log(significant_speedup(a, b)) for a in before for b in after]
    between = min(map(abs, speedups)) if min(speedups) > 0 or max(speedups) < 0 else 0.0
    within = max(_distance(side) for side in (before, after))
    typical = statistics.median(speedups)
    seen = between > within and abs(typical) >= math.log(_SMALLEST)
    return Comparison(first, second, math.exp(typical) if seen else 1.0)


def _distance(twins: Sequence[Sequence[float]]) -> float:
    """Return the largest difference between twins, as the logarithm of a ratio."""
    pairs = [(a, b) for i, a in enumerate(twins) for b in twins[:i]]
    return max((abs(math.log(statistics.median(_ratios(a, b)))) for a, b in pairs), default=0.0)


def _ratios(before: Sequence[float], after: Sequence[float]) -> list[float]:
    return [b / a for b, a in zip(before, after, strict=True)]
