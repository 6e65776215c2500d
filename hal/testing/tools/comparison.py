"""Is one kernel faster than another? A verdict from timings on a machine that does other things as well.

Three things make equal kernels look different. A busy machine slows down for a while: timings are interleaved, in another
order each round, and a sign test asks how often each side won. The memory and the code of a kernel lie somewhere, and may lie
badly for as long as the process runs: each side is built and timed twice, and a difference counts if it is larger than that
between the twins. And small differences mean little: those below 3 % are not reported.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from typing import NamedTuple, Protocol

_CHANCE = 0.005
"""For 21 rounds, 17 of which must agree."""
_SMALLEST = 1.03
"""The least speedup, or slowdown, that is worth a word."""
ROUNDS = 21
TWINS = 2
"""How many times each side is built."""


class Timed(Protocol):
    """Something that can be timed."""

    def sample(self) -> float:
        """Return seconds per call."""
        ...


class Comparison(NamedTuple):
    """Seconds per call of two sides, at the lower quartile, which other work on the machine hardly moves; and the verdict."""

    before: float
    after: float
    speedup: float
    """The median ratio; 1.0 if no difference was seen."""


def interleaved(runners: Sequence[Timed], rounds: int = ROUNDS) -> list[list[float]]:
    """One timing of each runner per round, so that a slow phase of the machine affects all alike.

    The order changes from round to round: what ran before a kernel may leave caches and clocks in another state.
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
    """The median ratio of interleaved timings, round by round; 1.0 if chance may explain it.

    That is a sign test: were both equally fast, each would win half of the rounds. The winner must have won so many that a
    fair coin does so with a probability below `_CHANCE`.
    """
    ratios = _ratios(before, after)
    wins = max(sum(r > 1 for r in ratios), sum(r < 1 for r in ratios))
    likely = sum(math.comb(len(ratios), k) for k in range(wins, len(ratios) + 1)) / 2 ** len(ratios) >= _CHANCE
    return 1.0 if likely else statistics.median(ratios)


def compare(before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]) -> Comparison:
    """Compare two sides by the interleaved timings of the twins of each.

    A difference is seen if each twin of one side is significantly faster than each of the other, by more than twins differ,
    and by 3 % at least.
    """
    first, second = (statistics.quantiles([x for s in side for x in s])[0] for side in (before, after))
    speedups = [math.log(significant_speedup(a, b)) for a in before for b in after]
    between = min(map(abs, speedups)) if min(speedups) > 0 or max(speedups) < 0 else 0.0
    within = max(_distance(side) for side in (before, after))
    typical = statistics.median(speedups)
    seen = between > within and abs(typical) >= math.log(_SMALLEST)
    return Comparison(first, second, math.exp(typical) if seen else 1.0)


def _distance(twins: Sequence[Sequence[float]]) -> float:
    """The largest difference between twins, as the logarithm of a ratio."""
    pairs = [(a, b) for i, a in enumerate(twins) for b in twins[:i]]
    return max((abs(math.log(statistics.median(_ratios(a, b)))) for a, b in pairs), default=0.0)


def _ratios(before: Sequence[float], after: Sequence[float]) -> list[float]:
    return [b / a for b, a in zip(before, after, strict=True)]
