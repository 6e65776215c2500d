"""Derivatives by central differences in float64 on the host: what the tape is measured against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

_STEP = 1e-5
"""The truncation error is about step^2, the rounding error 1e-16 / step: both near 1e-10."""
_EVERY = 24
_SOME = 8

Scalar = Callable[[Sequence[np.ndarray]], float]


@dataclass(frozen=True, slots=True)
class Direction:
    """A change of all points at once, and the place it stands for."""

    steps: tuple[np.ndarray, ...]
    name: str


def directions(points: Sequence[np.ndarray], rng: np.random.Generator, some: int = _SOME) -> list[Direction]:
    """Every single element where there are few, else some of them; and one direction in which all elements move."""
    places = [(i, tuple(int(k) for k in index)) for i, p in enumerate(points) for index in np.ndindex(p.shape)]
    if len(places) > max(_EVERY, some):
        places = [places[int(k)] for k in rng.choice(len(places), some, replace=False)]
    out = []
    for i, index in places:
        steps = tuple(np.zeros(p.shape) for p in points)
        steps[i][index] = 1.0
        out.append(Direction(steps, f"input {i} at {index}"))
    out.append(
        Direction(
            tuple(rng.choice([-1.0, 1.0], p.shape) * rng.uniform(0.5, 1.0, p.shape) for p in points), "all elements"
        )
    )
    return out


def slope(function: Scalar, points: Sequence[np.ndarray], direction: Direction) -> float:
    """The central difference of `function` along `direction`."""
    ahead = function([np.asarray(p + _STEP * s) for p, s in zip(points, direction.steps, strict=True)])
    behind = function([np.asarray(p - _STEP * s) for p, s in zip(points, direction.steps, strict=True)])
    return (ahead - behind) / (2 * _STEP)


def along(gradients: Sequence[np.ndarray], direction: Direction) -> float:
    """The slope along `direction` that `gradients` predict."""
    return float(sum(np.sum(g * s) for g, s in zip(gradients, direction.steps, strict=True)))
