"""The learning rate as a function of only the step, so that resuming needs no state."""

from __future__ import annotations

import math
from collections.abc import Callable

_FLOOR = 0.1
"""Final fraction of the peak of cosine and linear schedules."""


def _constant(progress: float) -> float:
    return 1.0


def _cosine(progress: float) -> float:
    return _FLOOR + (1 - _FLOOR) * 0.5 * (1 + math.cos(math.pi * progress))


def _linear(progress: float) -> float:
    return 1 - (1 - _FLOOR) * progress


SCHEDULES: dict[str, Callable[[float], float]] = {"cosine": _cosine, "linear": _linear, "constant": _constant}
"""Fraction of the peak rate after a fraction 0..1 of the steps after the warm-up.

Cosine: Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts", ICLR 2017.
"""


def share_of_peak(step: int, *, warmup: int, steps: int, schedule: str) -> float:
    """Return the factor on the peak rate at step `step` (from 0) of `steps`: a linear warm-up, then the schedule."""
    if step < warmup:
        return (step + 1) / warmup
    progress = (step - warmup) / max(steps - warmup, 1)
    return SCHEDULES[schedule](min(progress, 1.0))
