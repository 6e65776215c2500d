"""Resizing: each axis is a product with a banded matrix, whose columns and weights are computed on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

import polyhal as ph
from polyhal.onnx.registration import Value, operator
from polyhal.onnx.table.shapes import integers
from polyhal.tensor import Tensor


def _positions(mode: str, length: int, result: int, scale: float, roi: tuple[float, float]) -> np.ndarray:
    """Return the position in the axis of each result."""
    x = np.arange(result, dtype=np.float64)
    if mode == "asymmetric":
        return x / scale
    if mode == "align_corners":
        return x * (length - 1) / (scale * length - 1) if scale * length > 1 else np.zeros(result)
    if mode == "tf_crop_and_resize":
        begin, end = roi
        step = (end - begin) * (length - 1) / (result - 1) if result > 1 else 0.0
        return begin * (length - 1) + x * step if result > 1 else np.full(1, 0.5 * (begin + end) * (length - 1))
    if mode == "pytorch_half_pixel" and result == 1:
        return np.full(1, -0.5)
    if mode == "half_pixel_symmetric":
        adjusted = result / (scale * length)
        center = length / 2
        return center * (1 - adjusted) + (x + 0.5) / scale - 0.5
    if mode not in ("half_pixel", "pytorch_half_pixel"):
        raise ValueError(f"the coordinate transformation {mode!r} is unknown")
    return (x + 0.5) / scale - 0.5


def _nearest(mode: str, at: np.ndarray) -> np.ndarray:
    if mode == "round_prefer_floor":
        return np.ceil(at - 0.5)
    if mode == "round_prefer_ceil":
        return np.floor(at + 0.5)
    rounded: np.ndarray = np.floor(at) if mode == "floor" else np.ceil(at)
    return rounded


def _taps(
    mode: str, at: np.ndarray, scale: float, coefficient: float, antialias: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the elements that each result reads, and their weights."""
    stretch = min(scale, 1.0) if antialias else 1.0
    reach = (1 if mode == "linear" else 2) / stretch
    first = np.floor(at - reach).astype(np.int64) + 1
    places = first[:, None] + np.arange(int(np.ceil(2 * reach)))
    distance = np.abs(places - at[:, None]) * stretch
    if mode == "linear":
        weights = np.maximum(0, 1 - distance)
    else:
        a = coefficient
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        weights = np.where(distance <= 1, near, np.where(distance < 2, far, 0))
    return places, weights / weights.sum(1, keepdims=True) if antialias else weights


@operator("Resize", host=("roi", "scales", "sizes"), since=11)
def resize(
    x: Tensor,
    roi: Value = None,
    scales: Value = None,
    sizes: Value = None,
    *,
    antialias: int = 0,
    axes: list[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Any:
    chosen = [a % x.ndim for a in axes] if axes is not None else list(range(x.ndim))
    lengths = [x.shape[a] for a in chosen]
    if sizes is not None and np.size(sizes):
        wanted = integers(sizes)
        factors = [w / n for w, n in zip(wanted, lengths, strict=True)]
        if keep_aspect_ratio_policy != "stretch":
            factor = (min if keep_aspect_ratio_policy == "not_larger" else max)(factors)
            factors = [factor] * len(chosen)
            wanted = tuple(int(np.floor(factor * n + 0.5)) for n in lengths)
    else:
        factors = [float(s) for s in np.asarray(scales).reshape(-1)]
        wanted = tuple(int(np.floor(n * s)) for n, s in zip(lengths, factors, strict=True))
    regions = [(0.0, 1.0)] * len(chosen)
    if roi is not None and np.size(roi):
        flat = [float(v) for v in np.asarray(roi).reshape(-1)]
        regions = list(zip(flat[: len(chosen)], flat[len(chosen) :], strict=True))
    outside: Value = None
    for axis, n, result, scale, region in zip(chosen, lengths, wanted, factors, regions, strict=True):
        cropped = coordinate_transformation_mode == "tf_crop_and_resize"
        if n == result and scale == 1 and not (cropped and region != (0.0, 1.0)):
            continue
        at = _positions(coordinate_transformation_mode, n, result, scale, region)
        if cropped:
            beyond = ((at < 0) | (at > n - 1)).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
            outside = beyond if outside is None else outside | beyond
        if mode == "nearest":
            places = np.clip(_nearest(nearest_mode, at), 0, n - 1).astype(np.int64)
            x = ph.index_select(x, axis, ph.tensor(places, device=x.device))
            continue
        taps, weights = _taps(mode, at, scale, cubic_coeff_a, bool(antialias))
        if exclude_outside:
            weights = np.where((taps < 0) | (taps >= n), 0, weights)
            weights = weights / weights.sum(1, keepdims=True)
        x = _combined(x, axis, np.clip(taps, 0, n - 1), weights)
    if outside is not None:
        x = ph.where(ph.tensor(outside, device=x.device), extrapolation_value, x)
    return x


def _combined(x: Tensor, axis: int, taps: np.ndarray, weights: np.ndarray) -> Any:
    """Return weighted sums of elements along an axis, by a product with a matrix."""
    matrix = np.zeros((len(taps), x.shape[axis]))
    np.add.at(matrix, (np.arange(len(taps))[:, None], taps), weights)
    product = matrix.astype(x.dtype.numpy if x.dtype.is_floating_point else np.float32)
    last = ph.swapaxes(x if x.dtype.is_floating_point else x.to(ph.float32), axis, -1)
    out = ph.swapaxes(ph.matmul(last, ph.tensor(product.T, device=x.device)), axis, -1)
    return out if x.dtype.is_floating_point else out.to(x.dtype)


@operator("Resize", "Upsample", host=("scales",))
def upsample(x: Tensor, scales: Value, *, mode: str = "nearest") -> Any:
    mode = "linear" if mode in ("linear", "bilinear") else mode
    return resize(x, None, scales, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor")
