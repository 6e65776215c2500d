"""A line search for the strong Wolfe conditions.

Source: Nocedal and Wright, "Numerical Optimization" (2006), section 3.5, with the choices of PyTorch's L-BFGS: the same
lengths are tried, so that both take the same steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_DECREASE = 1e-4
"""Minimum decrease of the loss, as a fraction of the decrease that the slope predicts."""
_CURVATURE = 0.9
"""Maximum magnitude of the final slope, as a fraction of the initial one."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Loss, gradient and slope along the direction at a step length."""

    length: float
    loss: float
    gradient: Any
    slope: float

    def falls_from(self, start: Trial) -> bool:
        """Return whether the loss has fallen enough."""
        return not self.loss > start.loss + _DECREASE * self.length * start.slope

    def is_flat(self, start: Trial) -> bool:
        """Return whether the slope has fallen enough."""
        return abs(self.slope) <= -_CURVATURE * start.slope


def strong_wolfe(
    probe: Callable[[float], Trial], length: float, start: Trial, reach: float, most: int, tolerance: float = 1e-9
) -> Trial:
    """Find a step length; `length` is tried first, `start` is the trial at 0.

    `reach` is the largest element of the direction; the search ends where an interval times that is below `tolerance`, and
    after `most` more trials. Returns the best trial.
    """
    previous, current = start, probe(length)
    for count in range(most):
        if not math.isfinite(current.loss):
            current = probe((previous.length + current.length) / 2)
            continue
        if not current.falls_from(start) or (count > 1 and current.loss >= previous.loss):
            return _zoomed(probe, start, (previous, current), reach, tolerance, most - count)
        if current.is_flat(start):
            return current
        if current.slope >= 0:
            return _zoomed(probe, start, (previous, current), reach, tolerance, most - count)
        least = current.length + 0.01 * (current.length - previous.length)
        longer = _cubic_minimum(previous, current, least, current.length * 10)
        previous, current = current, probe(longer)
    return start if start.loss <= current.loss else current


def _zoomed(
    probe: Callable[[float], Trial],
    start: Trial,
    bracket: tuple[Trial, Trial],
    reach: float,
    tolerance: float,
    most: int,
) -> Trial:
    """Shrink an interval that contains a good length."""
    low, high = sorted(bracket, key=lambda t: t.loss)
    stalled = False
    for _ in range(most):
        first, last = sorted((low.length, high.length))
        if (last - first) * reach < tolerance:
            break
        length = _cubic_minimum(low, high, first, last)
        margin = 0.1 * (last - first)
        if min(last - length, length - first) >= margin:
            stalled = False
        elif stalled or length >= last or length <= first:
            length = last - margin if abs(length - last) < abs(length - first) else first + margin
            stalled = False
        else:
            stalled = True
        current = probe(length)
        if not current.falls_from(start) or not current.loss < low.loss:
            low, high = sorted((low, current), key=lambda t: t.loss)
            continue
        if current.is_flat(start):
            return current
        if current.slope * (high.length - low.length) >= 0:
            high = low
        low = current
    return low


def _cubic_minimum(a: Trial, b: Trial, least: float, most: float) -> float:
    """The minimum of the cubic with the losses and slopes of two trials, within bounds; the middle where there is none."""
    if a.length > b.length:
        a, b = b, a
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.length - b.length)
    square = d1 * d1 - a.slope * b.slope
    if square < 0 or not math.isfinite(square):
        return (least + most) / 2
    d2 = math.sqrt(square)
    denominator = b.slope - a.slope + 2 * d2
    if denominator == 0:
        return (least + most) / 2
    minimum = b.length - (b.length - a.length) * (b.slope + d2 - d1) / denominator
    return min(max(minimum, least), most)
