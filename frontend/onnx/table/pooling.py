"""Pooling."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

import polyhal as ph
from polyhal.nn import functional
from polyhal.onnx.registration import NodeFacts, Value, operator
from polyhal.onnx.table.shapes import integers
from polyhal.onnx.table.window_places import WindowPlaces, windows
from polyhal.tensor import Tensor

_MAX = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
_MEAN = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}


@operator("MaxPool")
def max_pool(
    x: Tensor,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    storage_order: int = 0,
    strides: list[int] | None = None,
    node: NodeFacts,
) -> Any:
    places = windows(x.shape[2:], kernel_shape, auto_pad, pads, strides, dilations, bool(ceil_mode))
    half = all(2 * b <= (k - 1) * d + 1 for b, k, d in zip(places.before, places.kernel, places.dilations, strict=True))
    if node.uses(1):
        return _with_positions(x, places, bool(storage_order))
    if x.dtype.is_floating_point and places.symmetric and half and not ceil_mode and len(kernel_shape) in _MAX:
        return _MAX[len(kernel_shape)](x, places.kernel, places.strides, places.before, places.dilations)
    return reduce(ph.maximum, places.elements(places.padded(x, _lowest(x))))


def _lowest(x: Tensor) -> float:
    return float("-inf") if x.dtype.is_floating_point else ph.iinfo(x.dtype).min


def _with_positions(x: Tensor, places: WindowPlaces, by_columns: bool) -> Any:
    """Return maxima, and their positions in the whole tensor: by rows, or with the spatial axes in reverse order."""
    best: Value = None
    at: Value = None
    order = tuple(range(len(places.kernel)))
    plane: np.ndarray = np.arange(math.prod(x.shape[2:]))
    if by_columns:
        plane = plane.reshape(tuple(reversed(x.shape[2:]))).transpose(tuple(reversed(order)))
    positions = ph.tensor(plane.reshape((1, 1, *x.shape[2:])), device=x.device)
    elements = places.elements(places.padded(x, _lowest(x)))
    for values, where in zip(elements, places.elements(places.padded(positions, 0)), strict=True):
        if best is None:
            best, at = values, ph.broadcast_to(where, values.shape)
        else:
            at = ph.where(values > best, where, at)
            best = ph.maximum(best, values)
    planes = ph.arange(0, math.prod(x.shape[:2]), device=x.device).reshape((*x.shape[:2], *[1] * len(order)))
    return best, at + planes * math.prod(x.shape[2:])


@operator("AveragePool")
def average_pool(
    x: Tensor,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Any:
    places = windows(x.shape[2:], kernel_shape, auto_pad, pads, strides, dilations, bool(ceil_mode))
    plain = set(places.dilations) == {1} and places.symmetric and not ceil_mode and len(kernel_shape) in _MEAN
    if plain and all(2 * b <= k for b, k in zip(places.before, places.kernel, strict=True)):
        mean = _MEAN[len(kernel_shape)]
        return mean(x, places.kernel, places.strides, places.before, False, bool(count_include_pad))
    total = reduce(ph.add, places.elements(places.padded(x, 0.0)))
    return total / ph.tensor(_counts(x.shape[2:], places, bool(count_include_pad)), device=x.device).to(x.dtype)


def _counts(lengths: tuple[int, ...], places: WindowPlaces, padding_counts: bool) -> np.ndarray:
    """Return the number of elements in each window, with or without the padding."""
    result = np.ones((1,) * len(lengths), np.float32)
    for axis, n in enumerate(lengths):
        first = np.arange(places.results[axis]) * places.strides[axis] - places.before[axis]
        at = first[:, None] + np.arange(places.kernel[axis]) * places.dilations[axis]
        low, high = (-places.before[axis], n + places.after[axis]) if padding_counts else (0, n)
        count = ((at >= low) & (at < high)).sum(1).astype(np.float32)
        result = result * count.reshape([-1 if a == axis else 1 for a in range(len(lengths))])
    return result


@operator("LpPool")
def lp_pool(
    x: Tensor,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    p: int = 2,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Any:
    places = windows(x.shape[2:], kernel_shape, auto_pad, pads, strides, dilations, bool(ceil_mode))
    powers = ph.pow(ph.abs(x), p)
    return ph.pow(reduce(ph.add, places.elements(places.padded(powers, 0.0))), 1 / p)


@operator("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Any:
    return ph.mean(x, tuple(range(2, x.ndim)), keepdims=True)


@operator("GlobalMaxPool")
def global_max_pool(x: Tensor) -> Any:
    return ph.amax(x, tuple(range(2, x.ndim)), True)


@operator("GlobalLpPool")
def global_lp_pool(x: Tensor, *, p: int = 2) -> Any:
    return ph.pow(ph.sum(ph.pow(ph.abs(x), p), tuple(range(2, x.ndim)), keepdims=True), 1 / p)


@operator("MaxUnpool", host=("output_shape",))
def max_unpool(
    x: Tensor,
    indices: Tensor,
    output_shape: Value = None,
    *,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Any:
    axes = len(kernel_shape)
    stride, padding = strides or [1] * axes, pads or [0] * (2 * axes)
    lengths = [
        (n - 1) * s + k - padding[i] - padding[i + axes]
        for i, (n, s, k) in enumerate(zip(x.shape[2:], stride, kernel_shape, strict=True))
    ]
    shape = (*x.shape[:2], *lengths)
    flat = ph.zeros((math.prod(shape),), dtype=x.dtype, device=x.device)
    out = ph.reshape(ph.scatter(flat, 0, ph.reshape(indices, (-1,)), ph.reshape(x, (-1,))), shape)
    if output_shape is None:
        return out
    wanted = integers(output_shape)
    return ph.pad(out, [(0, w - n) for w, n in zip(wanted, shape, strict=True)], 0.0)
