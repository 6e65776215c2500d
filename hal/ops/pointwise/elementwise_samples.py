"""Test samples of elementwise ops: uniform draws over broadcasting shapes, log-spaced magnitudes and special values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhal.hal.ops.samples import Sample, Samples
from polyhal.hal.ops.tensor_like import Array

Interval = tuple[float, float]

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 0.5, -2.5, 1.5])
"""Signed zeros, infinities, NaN and numbers whose rounding is a tie."""

_SHAPES: dict[int, list[tuple[tuple[int, ...], ...]]] = {
    1: [((),), ((0,),), ((1,),), ((33,),), ((3, 1, 5),), ((2, 3, 2, 2, 3),)],
    2: [
        ((), ()),
        ((0, 3), (1, 3)),
        ((33,), (33,)),
        ((4, 1, 5), (3, 1)),
        ((6, 5), (5,)),
        ((1, 4), (3, 1)),
        ((2, 1, 3, 1, 2), (3, 1, 2, 1)),
    ],
    3: [((), (), ()), ((0,), (1,), ()), ((33,), (33,), (33,)), ((4, 1), (3,), (4, 3)), ((3, 1, 2), (2, 1, 1, 2), ())],
}
"""Shapes of the inputs by their number: scalars, empty, odd sizes, broadcasting in each direction."""


class Uniform:
    """Samples drawn uniformly: from one interval for all inputs, or from one per input."""

    def __init__(self, *intervals: Interval, special: bool = True) -> None:
        self._intervals = intervals or ((-4.0, 4.0),)
        self._special = special

    def of(self, names: tuple[str, ...], *, integral: bool) -> Samples:
        """Samples for inputs of these names; an input `cond` receives bools, ops on integers no special values."""
        special = self._special and not integral
        intervals = self._intervals * len(names) if len(self._intervals) == 1 else self._intervals

        def samples(rng: np.random.Generator) -> list[Sample]:
            out = []
            for shapes in _SHAPES[len(names)]:
                drawn = zip(shapes, intervals, names, strict=True)
                out.append(Sample(tuple(_draw(rng, s, interval, name == "cond") for s, interval, name in drawn)))
            if len(names) == 1:
                out.append(_log_spaced(*intervals[0]))
            if len(names) == 2:
                out += _with_numbers(rng, intervals[0], intervals[1])
            return out + _special(len(names)) if special else out

        return samples


UNIFORM = Uniform()
"""Test inputs of elementwise ops unless they declare otherwise."""


def _draw(rng: np.random.Generator, shape: tuple[int, ...], interval: Interval, condition: bool) -> Any:
    return rng.random(shape) < 0.5 if condition else rng.uniform(*interval, shape)


def _log_spaced(low: float, high: float) -> Sample:
    """Magnitudes down to a millionth of the interval: uniform draws would hide an error near 0."""
    magnitudes = np.logspace(-6, 0, 13) * min(abs(low) or abs(high), abs(high))
    signed = np.concatenate([-magnitudes, magnitudes]) if low < 0 else magnitudes
    return Sample((signed,), note="log-spaced", differentiable=False)


def _with_numbers(rng: np.random.Generator, left: Interval, right: Interval) -> list[Sample]:
    return [
        Sample((_draw(rng, (5,), left, False), float(np.mean(right) + 0.5)), note="number right"),
        Sample((2.0, _draw(rng, (5,), right, False)), note="number left"),
    ]


def _special(arity: int) -> list[Sample]:
    """The special values, or all pairs of them."""
    if arity == 1:
        return [Sample((SPECIAL,), special=True)]
    if arity == 2:
        a, b = np.meshgrid(SPECIAL, SPECIAL)
        return [Sample((a.reshape(-1), b.reshape(-1)), special=True)]
    return []


def spread(low: float, high: float, *kinks: float, params: Sequence[dict[str, Any]] = ({},)) -> Samples:
    """Few samples of one input: an odd and a broadcastable shape and the special values, for each set of parameters.

    The values keep away from `kinks`, which finite differences must not cross.
    """

    def samples(rng: np.random.Generator) -> list[Sample]:
        out = []
        for p in params:
            out += [Sample((_away(rng.uniform(low, high, shape), kinks),), p) for shape in [(33,), (3, 1, 5)]]
            out.append(Sample((SPECIAL,), p, special=True))
        return out

    return samples


def _away(values: Array, kinks: Sequence[float]) -> Any:
    for kink in kinks:
        values = np.where(np.abs(values - kink) < 0.05, kink + 0.1, values)
    return values


def pairs(left: Interval, right: Interval, *, special: bool = True) -> Samples:
    """Few samples of two inputs: odd, broadcasting, a number on the right, and all pairs of special values."""

    def samples(rng: np.random.Generator) -> list[Sample]:
        shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((33,), (33,)), ((4, 1, 5), (3, 1))]
        out = [Sample((rng.uniform(*left, a), rng.uniform(*right, b))) for a, b in shapes]
        out.append(Sample((rng.uniform(*left, (5,)), float(np.mean(right)))))
        return out + _special(2) if special else out

    return samples
