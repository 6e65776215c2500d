"""A line search for the strong Wolfe conditions. Source: Nocedal and Wright, "Numerical Optimization" (2006), section 3.5."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Probe = Callable[[float], "tuple[float, Any]"]
"""From a step length to the loss and the gradient there."""


@dataclass(frozen=True, slots=True)
class _Trial:
    length: float
    loss: float
    gradient: Any
    slope: float


def strong_wolfe(
    probe: Probe,
    length: float,
    loss: float,
    gradient: Any,
    slope: float,
    dot: Callable[[Any, Any], float],
    direction: Any,
    *,
    decrease: float = 1e-4,
    curvature: float = 0.9,
    most: int = 25,
) -> tuple[float, float, Any]:
    """Find a step length along `direction`; `loss`, `gradient` and `slope` are those at 0.

    The loss falls by at least `decrease` times what the slope promises, and the slope to at most `curvature` of its size.
    Returns length, loss and gradient of the best of at most `most` trials.
    """

    def trial(at: float) -> _Trial:
        value, grad = probe(at)
        return _Trial(at, value, grad, dot(grad, direction))

    start = previous = _Trial(0.0, loss, gradient, slope)
    current = trial(length)
    for count in range(most):
        if not math.isfinite(current.loss):
            current = trial((previous.length + current.length) / 2)
            continue
        too_high = current.loss > loss + decrease * current.length * slope
        if too_high or (count and current.loss >= previous.loss):
            return _zoomed(trial, start, previous, current, decrease, curvature, most - count)
        if abs(current.slope) <= -curvature * slope:
            break
        if current.slope >= 0:
            return _zoomed(trial, start, current, previous, decrease, curvature, most - count)
        longer = _cubic_minimum(previous, current, current.length * 1.01, current.length * 10)
        previous, current = current, trial(longer)
    return current.length, current.loss, current.gradient


def _zoomed(
    trial: Callable[[float], _Trial],
    start: _Trial,
    low: _Trial,
    high: _Trial,
    decrease: float,
    curvature: float,
    most: int,
) -> tuple[float, float, Any]:
    """Shrink an interval that contains a good length; `low` is its end with the smaller loss."""
    for _ in range(most):
        first, last = sorted((low.length, high.length))
        if (last - first) * abs(start.slope) < 1e-9:
            break
        margin = 0.1 * (last - first)
        current = trial(_cubic_minimum(low, high, first + margin, last - margin))
        if current.loss > start.loss + decrease * current.length * start.slope or current.loss >= low.loss:
            high = current
            continue
        if abs(current.slope) <= -curvature * start.slope:
            low = current
            break
        if current.slope * (high.length - low.length) >= 0:
            high = low
        low = current
    return low.length, low.loss, low.gradient


def _cubic_minimum(a: _Trial, b: _Trial, least: float, most: float) -> float:
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
