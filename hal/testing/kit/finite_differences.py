"""Directional derivatives by central differences in float64 on the host, the reference of gradient tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

_STEP = 1e-5
"""Step size: the truncation error is about step^2, the rounding error 1e-16 / step, both near 1e-10."""
_MAX_EXHAUSTIVE = 24
"""Maximum number of elements for which each is checked individually."""
_SAMPLED = 8

ScalarFunction = Callable[[Sequence[np.ndarray]], float]


@dataclass(frozen=True, slots=True)
class Direction:
    """A step in the space of all inputs, and its name in messages."""

    steps: tuple[np.ndarray, ...]
    name: str


def directions(points: Sequence[np.ndarray], rng: np.random.Generator, sampled: int = _SAMPLED) -> list[Direction]:
    """Return one direction per element if there are few, else for a sample of them; and one that moves all elements."""
    places = [(i, tuple(int(k) for k in index)) for i, p in enumerate(points) for index in np.ndindex(p.shape)]
    if len(places) > max(_MAX_EXHAUSTIVE, sampled):
        places = [places[int(k)] for k in rng.choice(len(places), sampled, replace=False)]
    out = []
    for i, index in places:
        steps = tuple(np.zeros(p.shape) for p in points)
        steps[i][index] = 1.0
        out.append(Direction(steps, f"input {i} at {index}"))
    everything = tuple(rng.choice([-1.0, 1.0], p.shape) * rng.uniform(0.5, 1.0, p.shape) for p in points)
    return [*out, Direction(everything, "all elements")]


def central_difference(function: ScalarFunction, points: Sequence[np.ndarray], direction: Direction) -> float:
    """Measure the derivative of `function` along `direction`."""
    ahead = function([np.asarray(p + _STEP * s) for p, s in zip(points, direction.steps, strict=True)])
    behind = function([np.asarray(p - _STEP * s) for p, s in zip(points, direction.steps, strict=True)])
    return (ahead - behind) / (2 * _STEP)


def directional_derivative(gradients: Sequence[np.ndarray], direction: Direction) -> float:
    """Return the derivative along `direction` predicted by `gradients`."""
    return float(sum(np.sum(g * s) for g, s in zip(gradients, direction.steps, strict=True)))
