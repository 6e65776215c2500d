"""Resampling along an axis as a banded matrix: for each result, the first element that it reads and the weights of a run.

All methods are linear and read runs of neighbors, so one table describes each, and its transpose the gradient. The
positions follow PyTorch's `interpolate` and `adaptive_avg_pool`.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np


class Method(NamedTuple):
    """How an axis is resampled."""

    kind: str
    """nearest, nearest-exact, linear, cubic, or mean (over an even division of the axis)."""
    align_corners: bool = False
    """The first and the last elements keep their positions; otherwise their outer edges do."""
    antialias: bool = False
    """Downsampling averages over as many elements as a result covers."""
    scale: float | None = None
    """Results per element; None: the ratio of the lengths."""


class Band(NamedTuple):
    """Rows of a banded matrix: row r is `weights[r]` with first column `starts[r]`, and zero elsewhere."""

    starts: np.ndarray
    weights: np.ndarray


@functools.lru_cache(maxsize=256)
def resampling_band(method: Method, length: int, result: int, transposed: bool) -> Band:
    """The matrix that takes an axis of `length` to `result` elements, or its transpose."""
    rows, columns, weights = _ENTRIES[method.kind](method, length, result)
    used = weights != 0
    rows, columns, weights = rows[used], columns[used], weights[used]
    return (
        _band(columns, rows, weights, length, result) if transposed else _band(rows, columns, weights, result, length)
    )


def _band(rows: np.ndarray, columns: np.ndarray, weights: np.ndarray, height: int, width: int) -> Band:
    first = np.full(height, width, np.int64)
    last = np.full(height, -1, np.int64)
    np.minimum.at(first, rows, columns)
    np.maximum.at(last, rows, columns)
    taps = max(int((last - first).max(initial=0)) + 1, 1)
    # Runs end within the axis, so that every tap can be read.
    starts = np.clip(first, 0, max(width - taps, 0))
    out = np.zeros((height, taps))
    np.add.at(out, (rows, columns - starts[rows]), weights)
    return Band(starts.astype(np.int32), out)


Entries = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Rows, columns and values of the entries of a matrix."""


def _steps(method: Method, length: int, result: int) -> float:
    """The distance between results, in elements."""
    if method.align_corners:
        return (length - 1) / (result - 1) if result > 1 else 0.0
    return length / result if method.scale is None else 1.0 / method.scale


def _nearest(method: Method, length: int, result: int) -> Entries:
    # In float32, as PyTorch: otherwise positions next to an integer would fall to the other side.
    step = np.float32(_steps(method, length, result))
    rows = np.arange(result)
    shift = np.float32(0.5 if method.kind == "nearest-exact" else 0.0)
    at = np.floor((rows.astype(np.float32) + shift) * step).astype(np.int64)
    return rows, np.minimum(at, length - 1), np.ones(result)


def _linear(method: Method, length: int, result: int) -> Entries:
    if method.antialias:
        return _antialiased(method, length, result, 1.0, lambda x: np.maximum(1 - np.abs(x), 0))
    at = np.maximum(_positions(method, length, result), 0)
    low = np.minimum(np.floor(at).astype(np.int64), length - 1)
    high = np.minimum(low + 1, length - 1)
    part = np.clip(at - low, 0, 1)
    rows = np.arange(result)
    return np.tile(rows, 2), np.concatenate([low, high]), np.concatenate([1 - part, part])


def _positions(method: Method, length: int, result: int) -> np.ndarray:
    step, rows = _steps(method, length, result), np.arange(result)
    return step * rows if method.align_corners else step * (rows + 0.5) - 0.5


def _cubic(method: Method, length: int, result: int) -> Entries:
    if method.antialias:
        return _antialiased(method, length, result, 2.0, lambda x: _keys(np.abs(x), -0.5))
    at = _positions(method, length, result)
    base = np.floor(at)
    taps = np.arange(-1, 3)
    columns = np.clip(base[:, None] + taps, 0, length - 1).astype(np.int64)
    weights = _keys(np.abs((at - base)[:, None] - taps), -0.75)
    return np.repeat(np.arange(result), 4), columns.reshape(-1), weights.reshape(-1)


def _keys(x: np.ndarray, a: float) -> np.ndarray:
    """The cubic convolution kernel at distance `x`. Source: Keys, IEEE Trans. ASSP 29 (1981)."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _antialiased(method: Method, length: int, result: int, reach: float, kernel: object) -> Entries:
    """The kernel, as wide as a result covers; its weights within the axis add up to 1."""
    assert callable(kernel)
    step = _steps(method, length, result)
    widened = max(step, 1.0)
    center = step * (np.arange(result) + 0.5)
    first = np.maximum((center - reach * widened + 0.5).astype(np.int64), 0)
    end = np.minimum((center + reach * widened + 0.5).astype(np.int64), length)
    columns = first[:, None] + np.arange(max(int((end - first).max(initial=0)), 1))
    weights = kernel((columns - center[:, None] + 0.5) / widened) * (columns < end[:, None])
    total = weights.sum(axis=1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total != 0)
    rows = np.broadcast_to(np.arange(result)[:, None], columns.shape)
    return rows.reshape(-1), np.minimum(columns, length - 1).reshape(-1), weights.reshape(-1)


def _mean(method: Method, length: int, result: int) -> Entries:
    rows = np.arange(result)
    first, end = rows * length // result, -(-(rows + 1) * length // result)
    columns = first[:, None] + np.arange(max(int((end - first).max(initial=0)), 1))
    inside = columns < end[:, None]
    weights = np.where(inside, 1.0 / (end - first)[:, None], 0.0)
    return np.nonzero(inside)[0], columns[inside], weights[inside]


_ENTRIES = {"nearest": _nearest, "nearest-exact": _nearest, "linear": _linear, "cubic": _cubic, "mean": _mean}
