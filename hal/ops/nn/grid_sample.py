"""Sampling images and volumes at the positions in a tensor, with linear, cubic or nearest interpolation."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import (
    Decompose,
    ErrorSample,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    declare,
    tensor_at,
)
from polyhal.hal.ops.indexing.rows import embedding
from polyhal.hal.ops.layout.creation import arange
from polyhal.hal.ops.layout.views import broadcast_to, permute, reshape
from polyhal.hal.ops.nn.window_shape import require_floats
from polyhal.hal.ops.pointwise.arithmetic import abs_
from polyhal.hal.ops.pointwise.logic import equal, greater, greater_equal, less, less_equal, logical_and
from polyhal.hal.ops.pointwise.rounding import floor, round_
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.reductions.sums import sum_
from polyhal.hal.ops.tensor_like import Array, TensorLike

_TAPS = {"nearest": 1, "bilinear": 2, "bicubic": 4}
"""Elements that a result reads along each axis, by mode."""
_PADDINGS = ("zeros", "border", "reflection")
_CUBIC = -0.75
"""The parameter of Keys' kernel, as in PyTorch."""


# --- reference ------------------------------------------------------------------------------------------------------


def _np_reflected(at: Array, n: int, align: bool) -> Any:
    low, span = (0.0, n - 1.0) if align else (-0.5, float(n))
    if not span:
        return np.zeros_like(at)
    distance = np.abs(at - low)
    part, turns = np.mod(distance, span), np.floor(distance / span)
    return np.where(turns % 2 == 0, part + low, span - part + low)


def _np_inside(at: Array, n: int, padding: str, align: bool) -> Any:
    """Positions moved into the axis as the padding mode says."""
    if padding == "reflection":
        at = _np_reflected(at, n, align)
    return at if padding == "zeros" else np.clip(at, 0, n - 1)


def _np_taps(at: Array, n: int, mode: str, padding: str, align: bool) -> list[tuple[Any, Any]]:
    """Position and weight of every element that is read along an axis."""
    at = ((at + 1) * (n - 1) if align else (at + 1) * n - 1) / 2
    if mode == "bicubic":
        base = np.floor(at)
        out = []
        for tap in (-1, 0, 1, 2):
            d = np.abs(at - base - tap)
            near = ((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1
            far = ((d - 5) * d + 8) * d * _CUBIC - 4 * _CUBIC
            out.append((_np_inside(base + tap, n, padding, align), np.where(d < 1, near, far)))
        return out
    at = _np_inside(at, n, padding, align)
    if mode == "nearest":
        return [(np.round(at), np.ones_like(at))]
    base = np.floor(at)
    return [(base, base + 1 - at), (base + 1, at - base)]


def _grid_sample(
    x: Any, grid: Array, *, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False
) -> Any:
    """`x` (N, C, H, W) at positions `grid` (N, H', W', 2), or volumes (N, C, D, H, W) at (N, D', H', W', 3).

    A position has the coordinate along the last axis first; -1 and 1 are the ends of an axis: the centers of the outer
    elements with `align_corners`, else their edges. Modes are bilinear, nearest and, for images, bicubic; outside are
    zeros, the nearest element ("border") or the mirrored image ("reflection").
    """
    x, grid = np.asarray(x), np.asarray(grid)
    lengths, batch = x.shape[2:], np.arange(len(x)).reshape(-1, *[1] * (grid.ndim - 2))
    axes = [_np_taps(grid[..., -1 - i], n, mode, padding_mode, align_corners) for i, n in enumerate(lengths)]
    total = np.zeros((*grid.shape[:-1], x.shape[1]), np.result_type(x, grid))
    for taps in itertools.product(*axes):
        inside = np.logical_and.reduce([(at >= 0) & (at < n) for (at, _), n in zip(taps, lengths, strict=True)])
        index = tuple(np.where(inside, at, 0).astype(int) for at, _ in taps)
        weight = math.prod(w for _, w in taps)
        total += np.where(inside[..., None], x[(batch, slice(None), *index)], 0) * np.asarray(weight)[..., None]
    return np.moveaxis(total, -1, 1)


# --- decomposition --------------------------------------------------------------------------------------------------


def _reflected(at: TensorLike, n: int, align: bool) -> Any:
    low, span = (0.0, n - 1.0) if align else (-0.5, float(n))
    if not span:
        return at * 0.0
    distance = abs_(at - low)
    turns = floor(distance / span)
    part = distance - turns * span
    odd = turns - floor(turns * 0.5) * 2.0
    return where(equal(odd, 0.0), part + low, span - part + low)


def _inside(at: TensorLike, n: int, padding: str, align: bool) -> Any:
    if padding == "reflection":
        at = _reflected(at, n, align)
    if padding == "zeros":
        return at
    # A position outside has no gradient, and one that is not a number counts as the first.
    return where(greater(at, 0.0), where(less(at, n - 1.0), at, float(n - 1)), 0.0)


def _taps_along(at: TensorLike, n: int, mode: str, padding: str, align: bool) -> tuple[Any, Any]:
    """Positions (N, points, taps) and weights of the elements that are read along an axis; no weights if all are 1."""
    at = reshape((at + 1.0) * ((n - 1) / 2) if align else (at + 1.0) * (n / 2) - 0.5, (*at.shape, 1))
    if mode == "bicubic":
        base = floor(at)
        places = base + arange(-1, 3, 1, at.dtype)
        d = abs_(at - places)
        near = ((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1.0
        far = ((d - 5.0) * d + 8.0) * d * _CUBIC - 4 * _CUBIC
        return _inside(places, n, padding, align), where(less(d, 1.0), near, far)
    at = _inside(at, n, padding, align)
    if mode == "nearest":
        return round_(at), None
    base, second = floor(at), arange(0, 2, 1, at.dtype)
    return base + second, (1.0 - second) + (second * 2.0 - 1.0) * (at - base)


def _decomposed(x: TensorLike, grid: TensorLike, *, mode: str, padding_mode: str, align_corners: bool) -> Any:
    n, channels, *lengths = x.shape
    axes, points = len(lengths), math.prod(grid.shape[1:-1])
    dtype = dtypes.int32 if n * math.prod(lengths) < 1 << 31 else dtypes.int64
    positions = reshape(grid, (n, points, axes))
    index = reshape(arange(0, n, 1, dtype), (n, 1, *[1] * axes))
    weight, visible = None, None
    for i, length in enumerate(lengths):
        at, factor = _taps_along(positions[..., axes - 1 - i], length, mode, padding_mode, align_corners)
        shape = (n, points, *(at.shape[2] if k == i else 1 for k in range(axes)))
        at = reshape(at, shape)
        inside = logical_and(greater_equal(at, 0.0), less_equal(at, length - 1.0))
        index = index * length + where(inside, at, 0.0).cast(dtype=dtype)
        visible = inside if visible is None else logical_and(visible, inside)
        if factor is not None:
            factor = reshape(factor, shape)
            weight = factor if weight is None else weight * factor
    taps = _TAPS[mode] ** axes
    full = (n, points, *[_TAPS[mode]] * axes)
    rows = reshape(permute(x, (0, *range(2, 2 + axes), 1)), (n * math.prod(lengths), channels))
    values = embedding(rows, reshape(broadcast_to(index, full), (n, points, taps)))
    if padding_mode == "zeros":
        values = where(reshape(broadcast_to(visible, full), (n, points, taps, 1)), values, 0.0)
    if weight is not None:
        weight = weight if weight.dtype is values.dtype else weight.cast(dtype=values.dtype)
        values = sum_(values * reshape(broadcast_to(weight, full), (n, points, taps, 1)), 2)
    return permute(reshape(values, (n, *grid.shape[1:-1], channels)), (0, 1 + axes, *range(1, 1 + axes)))


# --- declaration ----------------------------------------------------------------------------------------------------


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    require_floats("grid_sample", specs)
    x, grid = tensor_at(specs, 0), tensor_at(specs, 1)
    axes = x.ndim - 2
    if axes not in (2, 3) or grid.ndim != x.ndim or grid.shape[0] != x.shape[0] or grid.shape[-1] != axes:
        raise ValueError(f"x {x.shape} and grid {grid.shape}; expected (N, C, H, W) and (N, H', W', 2), or volumes")
    if 0 in x.shape[2:]:
        raise ValueError(f"x {x.shape}; expected spatial axes that are not empty")
    if params["mode"] not in _TAPS or (params["mode"] == "bicubic" and axes != 2):
        raise ValueError(f"mode {params['mode']!r}; expected bilinear, nearest or, for images, bicubic")
    if params["padding_mode"] not in _PADDINGS:
        raise ValueError(f"padding_mode {params['padding_mode']!r}; expected {', '.join(_PADDINGS)}")
    params["align_corners"] = bool(params["align_corners"])
    return [(x.dtype, (*x.shape[:2], *grid.shape[1:-1]))]


def _terms(specs: Specs, params: Params) -> int:
    return int(_TAPS[params["mode"]] ** (tensor_at(specs, 0).ndim - 2))


def _samples(rng: np.random.Generator) -> list[Sample]:
    cases: list[tuple[tuple[int, ...], tuple[int, ...], str, str, bool]] = [
        ((2, 3, 4, 5), (3, 2), "bilinear", "zeros", False),
        ((1, 2, 4, 3), (2, 3), "bicubic", "border", False),
        ((1, 2, 5, 3), (2, 2), "nearest", "reflection", True),
        ((1, 1, 3, 2, 4), (2, 1, 2), "bilinear", "reflection", True),
    ]
    out = []
    for shape, points, mode, padding, align in cases:
        # In quarters of an element off the middle: neither positions nor finite differences cross a kink.
        n = np.array(shape[:1:-1])
        at = rng.integers(-1, n + 1, (shape[0], *points, len(n))) + rng.choice([0.25, 0.375, 0.625], (len(n),))
        grid = 2 * at / (n - 1) - 1 if align else (2 * at + 1) / n - 1
        params = {"mode": mode, "padding_mode": padding, "align_corners": align}
        out.append(Sample((rng.uniform(-1, 1, shape), grid), params))
    return out


grid_sample = declare(
    _grid_sample,
    name="grid_sample",
    family="resampling",
    infer=_infer,
    lowering=Decompose(_decomposed),
    samples=_samples,
    errors=[
        ErrorSample((np.zeros((1, 1, 2, 2)), np.zeros((1, 2, 2, 3))), {}, ValueError, "expected .N, C, H, W."),
    ],
    dtypes=dtypes.FLOATS,
    public=False,
    # Weights are differences of positions of some ten elements, which are rounded when they are made.
    tolerance=Tolerance(64.0, floor=1.0, terms=_terms),
)
