"""Scales of blocks: the numbers by which quantised integers are multiplied, so that the weighted squared error is small.

A block of values x is approximated by `scale * q` or by `scale * q + least`, with integers q of few bits. For given q the best
scale and least value solve a linear system of weighted squares, but q depends on them. So several scales around the obvious
one are tried: each gives integers, these give the best scale, and the candidate with the least error is taken.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_TINY = 1e-30


class Affine(NamedTuple):
    """Scale and least value of every block, (...,) each; the least value is at most 0."""

    scale: np.ndarray
    least: np.ndarray


def signed_largest(x: np.ndarray) -> np.ndarray:
    """The value of the largest magnitude along the last axis, which is kept."""
    return np.asarray(np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1))


def inverse(x: np.ndarray) -> np.ndarray:
    """`1 / x`, and 0 for 0."""
    return np.asarray(np.divide(1, x, out=np.zeros_like(x), where=x != 0))


def symmetric(x: np.ndarray, low: int, weights: np.ndarray, steps: int = 9) -> np.ndarray:
    """Scales (...,) for integers from `low` to `-low - 1`, of blocks (..., n)."""
    largest = signed_largest(x)
    best = np.zeros(x.shape[:-1], np.float32)
    gain = np.full(x.shape[:-1], -1.0)
    for step in range(-steps, steps + 1):
        q = np.clip(np.rint(x * ((low + 0.1 * step) * inverse(largest))), low, -low - 1)
        products, squares = (weights * x * q).sum(-1), (weights * q * q).sum(-1)
        reached = np.where(squares > 0, products**2 / np.maximum(squares, _TINY), 0)
        better = reached > gain
        best = np.where(better, products / np.maximum(squares, _TINY), best)
        gain = np.maximum(gain, reached)
    return best.astype(np.float32)


def affine(x: np.ndarray, top: int, weights: np.ndarray, first: float, steps: int) -> Affine:
    """Scales and least values for integers from 0 to `top`, of blocks (..., n); `first` is the first offset of `top` tried."""
    least = np.minimum(x.min(-1), 0)[..., None]
    span = x.max(-1)[..., None] - least
    scale = span / top
    error = _error(x, _integers(x, scale, least, top), scale, least, weights)
    total, sum_x = weights.sum(-1), (weights * x).sum(-1)
    for step in range(steps + 1):
        q = np.clip(np.rint((x - least) * ((top + first + 0.1 * step) * inverse(span))), 0, top)
        sum_q, squares, products = (weights * q).sum(-1), (weights * q * q).sum(-1), (weights * x * q).sum(-1)
        determinant = total * squares - sum_q**2
        sound = determinant > 0
        divisor = np.where(sound, determinant, 1)
        new_scale = (total * products - sum_x * sum_q) / divisor
        new_least = (squares * sum_x - sum_q * products) / divisor
        positive = new_least > 0
        new_scale = np.where(positive, products / np.maximum(squares, _TINY), new_scale)[..., None]
        new_least = np.where(positive, 0, new_least)[..., None]
        new_error = _error(x, q, new_scale, new_least, weights)
        better = (sound & (new_error < error))[..., None]
        scale, least = np.where(better, new_scale, scale), np.where(better, new_least, least)
        error = np.where(better[..., 0], new_error, error)
    return Affine(scale[..., 0].astype(np.float32), least[..., 0].astype(np.float32))


def _integers(x: np.ndarray, scale: np.ndarray, least: np.ndarray, top: int) -> np.ndarray:
    return np.asarray(np.clip(np.rint((x - least) * inverse(scale)), 0, top))


def _error(x: np.ndarray, q: np.ndarray, scale: np.ndarray, least: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.asarray((weights * (scale * q + least - x) ** 2).sum(-1))
