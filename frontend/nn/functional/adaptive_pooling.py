"""Pooling to a given size: means and maxima over an even division of each axis.

Part i of n is from floor(i L / n) to ceil((i + 1) L / n), so that neighbors overlap if n does not divide the length L.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhal import functions as ops
from polyhal.hal import dtypes
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.nn.resample_tables import Method
from polyhal.hal.ops.top_level import top_level, top_level_as
from polyhal.nn.functional.pooling import avg_pool1d, avg_pool2d, avg_pool3d, max_windows
from polyhal.nn.functional.spatial import on_batch
from polyhal.tensor import Tensor

_resample = FUNCTIONS["resample"]
_resample_planes = FUNCTIONS["resample_planes"]
_MEAN = Method("mean")
Sizes = int | Sequence[int | None] | None
"""The length of each axis of the result; None keeps an axis."""


@top_level
def adaptive_avg_pool1d(input: Tensor, output_size: Sizes) -> Tensor:
    """Means over an even division of sequences (N, C, L) into `output_size` parts."""
    return _means("adaptive_avg_pool1d", 1, input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: Sizes) -> Tensor:
    """Means over an even division of images (N, C, H, W) into `output_size` (H, W) parts; None keeps an axis.

    Part i of n is from floor(i L / n) to ceil((i + 1) L / n), so that neighbors overlap if n does not divide L.
    Raises ShapeError.
    """
    return _means("adaptive_avg_pool2d", 2, input, output_size)


def adaptive_avg_pool3d(input: Tensor, output_size: Sizes) -> Tensor:
    """Means over an even division of volumes (N, C, D, H, W) into `output_size` parts, as `adaptive_avg_pool2d`."""
    return _means("adaptive_avg_pool3d", 3, input, output_size)


@top_level_as(lambda f: lambda input, output_size: f(input, output_size, True))
def adaptive_max_pool1d(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
    """Return maxima over an even division of sequences (N, C, L), as `adaptive_max_pool2d`."""
    return _maxima("adaptive_max_pool1d", 1, input, output_size, return_indices)


def adaptive_max_pool2d(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
    """Return maxima over an even division of images (N, C, H, W) into `output_size` (H, W) parts; None keeps an axis.

    With `return_indices` also their positions in each plane, row by row (int64). Raises ShapeError.
    """
    return _maxima("adaptive_max_pool2d", 2, input, output_size, return_indices)


def adaptive_max_pool3d(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
    """Return maxima over an even division of volumes (N, C, D, H, W), as `adaptive_max_pool2d`."""
    return _maxima("adaptive_max_pool3d", 3, input, output_size, return_indices)


def _parts(op: str, lengths: tuple[int, ...], output_size: Sizes) -> tuple[int, ...]:
    """Return the number of parts of each axis. Raises ShapeError."""
    sizes = [output_size] * len(lengths) if output_size is None or isinstance(output_size, int) else list(output_size)
    sizes = sizes * len(lengths) if len(sizes) == 1 else sizes
    if len(sizes) != len(lengths) or any(s is not None and s < 0 for s in sizes):
        raise ShapeError(
            message(op, f"output_size {output_size}", expected=f"one size, or one for {len(lengths)} axes")
        )
    if 0 in lengths:
        raise ShapeError(message(op, f"axes of lengths {lengths}", expected="at least 1"))
    return tuple(n if size is None else size for n, size in zip(lengths, sizes, strict=True))


def _means(op: str, axes: int, x: Tensor, output_size: Sizes) -> Tensor:
    def function(batch: Tensor) -> Tensor:
        lengths = batch.shape[2:]
        parts = _parts(op, lengths, output_size)
        if set(parts) == {1}:
            return ops.mean(batch, tuple(range(2, 2 + axes)), True)
        if 0 not in parts and all(n % p == 0 for n, p in zip(lengths, parts, strict=True)):
            pool = {1: avg_pool1d, 2: avg_pool2d, 3: avg_pool3d}[axes]
            return pool(batch, tuple(n // p for n, p in zip(lengths, parts, strict=True)))
        if 0 in parts:
            return batch[(..., *(slice(0, p) for p in parts))]
        # The mean of a box is the mean along one axis of the means along the others.
        return resampled(batch, [(axis, n, _MEAN) for axis, n in enumerate(parts, 2) if n != batch.shape[axis]])

    out: Tensor = on_batch(op, x, axes, function)
    return out


def resampled(x: Tensor, steps: Sequence[tuple[int, int, Method]]) -> Tensor:
    """`x` resampled: axis, new length and method of each step. The last two axes are resampled jointly."""
    if [axis for axis, _, _ in steps] == [x.ndim - 2, x.ndim - 1]:
        (_, down, down_method), (_, across, across_method) = steps
        planes: Tensor = _resample_planes(x, (down, across), (down_method, across_method))
        return planes
    dtype = x.dtype
    if dtype.itemsize < 4 and len(steps) > 1:
        x = x.cast(dtype=dtypes.float32)  # several steps, one rounding
    # Axes that shrink come first, so that the others have less to do.
    for axis, n, method in sorted(steps, key=lambda step: step[1] / x.shape[step[0]]):
        x = _resample(x, axis, n, method)
    return x if x.dtype is dtype else x.cast(dtype=dtype)


def _maxima(op: str, axes: int, x: Tensor, output_size: Sizes, return_indices: bool) -> Any:
    def function(batch: Tensor) -> Any:
        lengths = batch.shape[2:]
        parts = _parts(op, lengths, output_size)
        if 0 in parts:
            empty = batch[(..., *(slice(0, p) for p in parts))]
            return (empty, empty.cast(dtype="int64")) if return_indices else empty
        windows = []
        for n, p in zip(lengths, parts, strict=True):
            first, end = np.arange(p) * n // p, -(-np.arange(1, p + 1) * n // p)
            windows.append((first, end))
        return max_of_windows(batch, windows, return_indices)

    return on_batch(op, x, axes, function)


def max_of_windows(x: Tensor, windows: Sequence[tuple[np.ndarray, np.ndarray]], return_indices: bool) -> Any:
    """Return maxima over boxes of a batch: per axis, the first element of each window and the one after its last."""
    lengths = x.shape[2:]
    places, kernel = [], []
    for axis, (n, (first, end)) in enumerate(zip(lengths, windows, strict=True), 2):
        size = int((end - first).max())
        # Shorter windows read their last element again, which changes neither the maximum nor its first position.
        at = np.minimum(first[:, None] + np.arange(size), end[:, None] - 1).reshape(-1)
        places.append(at)
        kernel.append(size)
        if not np.array_equal(at, np.arange(n)):
            x = ops.take(x, Tensor(at, device=x.device), axis)
    window = (tuple(kernel), tuple(kernel), (0,) * len(kernel), (1,) * len(kernel))
    out = max_windows(x, window, False, return_indices)
    if not return_indices:
        return out
    values, positions = out
    total = None
    # Positions among the elements that were read, as positions in the axes.
    for axis in reversed(range(len(lengths))):
        read = len(places[axis])
        rest = positions // read
        at = ops.take(Tensor(places[axis], device=x.device), positions - rest * read)
        at = at * int(np.prod(lengths[axis + 1 :], dtype=np.int64))
        total = at if total is None else total + at
        positions = rest
    return values, total
