"""Max pooling over two axes, its gradient, and the positions of the maxima."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import (
    Decompose,
    ErrorSample,
    OpFunction,
    Output,
    Sample,
    Specs,
    Tolerance,
    declare,
    flat_in,
)
from polyhal.hal.ops.layout.creation import arange, full
from polyhal.hal.ops.layout.slicing import unslice
from polyhal.hal.ops.layout.sliding_windows import windows
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.nn.pooling_in_numpy import WindowAxis, reduce_windows, taps_of_maxima, window_axes
from polyhal.hal.ops.nn.pooling_windows import (
    CASES,
    borders,
    image,
    kernel_size,
    padded,
    padded_shape,
    pooled,
    pooled_sample,
    positions,
    without_borders,
)
from polyhal.hal.ops.nn.window_shape import Pair, require_floats
from polyhal.hal.ops.pointwise.logic import equal, logical_and, not_equal
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.reductions.extrema import max_
from polyhal.hal.ops.reductions.positions import argmax
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _lowest(dtype: Any) -> Any:
    """The value that counts as padding: -infinity, or the least integer."""
    kind = np.dtype(getattr(dtype, "numpy", dtype)).kind
    return int(np.iinfo(getattr(dtype, "numpy", dtype)).min) if kind in "iu" else -float("inf")


# --- values ---------------------------------------------------------------------------------------------------------


def _max_pool2d(
    x: Array,
    *,
    kernel: tuple[int, ...],
    stride: tuple[int, ...] | None = None,
    padding: tuple[int, ...] = (0, 0),
    dilation: tuple[int, ...] = (1, 1),
    ceil_mode: bool = False,
) -> Any:
    """Largest element of each window; NaN if any is NaN. Padding counts as -infinity.

    With `ceil_mode` the last windows may reach beyond the padding, but each begins in the image or before it.
    """
    x = np.asarray(x)
    for axis in window_axes(x.shape, kernel, stride, padding, dilation, ceil_mode):
        x = reduce_windows(np.maximum, x, axis, _lowest(x.dtype))
    return x


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = image(specs)
    if spec.dtype.kind == "bool":
        require_floats("max_pool2d", specs)
    return [(spec.dtype, pooled(spec.shape, params))]


def _decomposed(x: TensorLike, *, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, ceil_mode: bool) -> Any:
    frame = borders(x.shape, kernel, stride, padding, dilation, ceil_mode)
    return max_(windows(padded(x, frame, _lowest(x.dtype)), kernel, stride, dilation), (4, 5))


# --- gradient -------------------------------------------------------------------------------------------------------


def _best(x: np.ndarray, rows: WindowAxis, columns: WindowAxis) -> tuple[np.ndarray, np.ndarray]:
    """Return row and column of each window's maximum, which is never padding: the first of equal elements, the last NaN.

    Rows of the image are searched first. A window that is only padding, possible with dilation, has its first place there.
    """
    n, c, height, _ = x.shape
    in_rows = reduce_windows(np.maximum, x, columns, _lowest(x.dtype))
    best = reduce_windows(np.maximum, in_rows, rows, _lowest(x.dtype))
    row = taps_of_maxima(in_rows, best, rows) * np.intp(rows.dilation) + rows.starts()
    row_in_image = np.arange(n * c).reshape(n, c, 1, 1) * height + row
    taps = taps_of_maxima(x, in_rows, columns).take(
        row_in_image * columns.count + np.arange(columns.count), mode="clip"
    )
    column = taps * np.intp(columns.dilation) + columns.starts()
    if max(rows.dilation, columns.dilation) > 1:
        in_padding = (row < 0) | (column < 0)
        row, column = np.where(in_padding, rows.starts(), row), np.where(in_padding, columns.starts(), column)
    return row, column


def _max_pool2d_grad(
    grad: Array,
    x: Array,
    *,
    kernel: tuple[int, ...],
    stride: tuple[int, ...] | None = None,
    padding: tuple[int, ...] = (0, 0),
    dilation: tuple[int, ...] = (1, 1),
    ceil_mode: bool = False,
) -> Any:
    """Gradient of max_pool2d: each window's gradient goes to its first largest element, row by row, or to its last NaN."""
    x, grad = np.asarray(x), np.asarray(grad)
    n, c, height, width = x.shape
    row, column = _best(x, *window_axes(x.shape, kernel, stride, padding, dilation, ceil_mode))
    if max(dilation) > 1:  # the elements of a window may all be padding
        grad = np.where((row >= 0) & (column >= 0), grad, 0)
    out = np.zeros(x.size, grad.dtype)
    places = (np.arange(n * c).reshape(n, c, 1, 1) * height + row) * width + column
    np.add.at(out, places.reshape(-1), grad.reshape(-1))
    return out.reshape(x.shape)


def _infer_grad(specs: Specs, params: dict[str, Any]) -> list[Output]:
    require_floats("max_pool2d_grad", specs)
    g, x = image(specs), image(specs, 1)
    expected = pooled(x.shape, params)
    if g.shape != expected:
        raise ValueError(f"the gradient has shape {g.shape}; expected {expected}")
    return [(x.dtype, x.shape)]


def _taps(x: TensorLike, frame: tuple[Pair, ...], kernel: Pair, stride: Pair, dilation: Pair) -> Any:
    """Return the number, in the kernel, of each window's maximum: the first of equal elements, or of NaN the last."""
    view = windows(padded(x, frame, _lowest(x.dtype)), kernel, stride, dilation)
    n, c, oh, ow, r, s = view.shape
    largest = equal(view, max_(view, (4, 5), True))
    if any(w != (0, 0) for w in frame):  # padding is never a maximum
        inside = padded(full((1, 1, *x.shape[2:]), True, dtypes.bool_), frame, False)
        largest = logical_and(largest, windows(inside, kernel, stride, dilation))
    later = reshape(arange(2, r * s + 2, 1, dtypes.int32), (r, s))
    rank = where(not_equal(view, view), later, largest.cast(dtype=dtypes.int32))
    return argmax(reshape(rank, (n, c, oh, ow, r * s)), -1)


def _grad_decomposed(
    grad: TensorLike, x: TensorLike, *, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, ceil_mode: bool
) -> Any:
    frame = borders(x.shape, kernel, stride, padding, dilation, ceil_mode)
    chosen, total = _taps(x, frame, kernel, stride, dilation), None
    for tap, (starts, steps) in enumerate(positions(kernel, stride, dilation)):
        part = unslice(where(equal(chosen, tap), grad, 0.0), padded_shape(x.shape, frame), starts, steps)
        total = part if total is None else total + part
    return without_borders(total, frame, x.shape)


# --- positions ------------------------------------------------------------------------------------------------------


def _max_pool2d_indices(
    x: Array,
    *,
    kernel: tuple[int, ...],
    stride: tuple[int, ...] | None = None,
    padding: tuple[int, ...] = (0, 0),
    dilation: tuple[int, ...] = (1, 1),
    ceil_mode: bool = False,
) -> Any:
    """Row-major positions, in the plane H x W, of each window's first largest element, or of its last NaN."""
    x = np.asarray(x)
    row, column = _best(x, *window_axes(x.shape, kernel, stride, padding, dilation, ceil_mode))
    return row * x.shape[3] + column


def _infer_indices(specs: Specs, params: dict[str, Any]) -> list[Output]:
    return [(dtypes.int64, _infer(specs, params)[0][1])]


def _indices_decomposed(
    x: TensorLike, *, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, ceil_mode: bool
) -> Any:
    frame = borders(x.shape, kernel, stride, padding, dilation, ceil_mode)
    best = _taps(x, frame, kernel, stride, dilation)
    oh, ow = best.shape[2:]
    row = best // kernel[1]
    column = best - row * kernel[1]
    rows = row * dilation[0] + reshape(arange(0, oh, 1, dtypes.int64), (oh, 1)) * stride[0] - padding[0]
    return rows * x.shape[3] + column * dilation[1] + arange(0, ow, 1, dtypes.int64) * stride[1] - padding[1]


# --- declarations ---------------------------------------------------------------------------------------------------


def _distinct(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Values far enough apart that finite differences do not change which one is largest."""
    return rng.permutation(int(np.prod(shape))).reshape(shape) * 0.01 - 0.3


_DILATED = (
    (1, 1, 7, 8),
    {"kernel": (2, 3), "stride": (1, 2), "padding": (0, 1), "dilation": (2, 2), "ceil_mode": False},
)
_AT_BORDERS = {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1), "dilation": (1, 1), "ceil_mode": False}
_INFINITE = np.full((1, 1, 3, 3), -np.inf)
"""An image of -infinity, with windows that begin in the padding."""
_MIXED = np.array([[[[np.nan, 1.0, np.nan], [2.0, np.nan, 0.0], [0.0, 2.0, 2.0]]]])
"""An image with windows of several NaN and of equal numbers."""
_CASES = [*((s, {**p, "dilation": (1, 1)}) for s, p in CASES), _DILATED]
_ERRORS = [
    ErrorSample(
        (np.zeros((1, 1, 2, 2)),), {"kernel": (3, 3), "stride": None, "padding": (0, 0)}, ValueError, "does not fit"
    )
]


def _samples(rng: np.random.Generator) -> list[Sample]:
    return [Sample((_distinct(rng, s),), p) for s, p in _CASES]


max_pool2d_grad = declare(
    _max_pool2d_grad,
    name="max_pool2d_grad",
    family="pooling",
    infer=_infer_grad,
    lowering=Decompose(_grad_decomposed),
    dtypes=dtypes.FLOATS,
    samples=lambda rng: [
        *(
            Sample((rng.uniform(-1, 1, pooled_sample(s, p)), _distinct(rng, s)), p, differentiable=False)
            for s, p in _CASES[:-1]
        ),
        Sample((np.ones((1, 1, 2, 2)), _INFINITE), _AT_BORDERS, special=True, note="-infinity at the border"),
        Sample((np.arange(1.0, 5.0).reshape(1, 1, 2, 2), _MIXED), _AT_BORDERS, special=True, note="several NaN"),
    ],
    tolerance=Tolerance(2.0, terms=kernel_size),
)
max_pool2d: OpFunction = declare(
    _max_pool2d,
    name="max_pool2d",
    family="pooling",
    infer=_infer,
    lowering=Decompose(_decomposed, widen=False),
    dtypes=(*dtypes.FLOATS, dtypes.int32),
    errors=_ERRORS,
    gradient=flat_in("x")(
        lambda g, x, *, kernel, stride, padding, dilation, ceil_mode: max_pool2d_grad(
            g, x, kernel, stride, padding, dilation, ceil_mode
        )
    ),
    samples=_samples,
    tolerance=Tolerance(0.0),
)
max_pool2d_indices = declare(
    _max_pool2d_indices,
    name="max_pool2d_indices",
    family="pooling",
    infer=_infer_indices,
    lowering=Decompose(_indices_decomposed, widen=False),
    dtypes=(*dtypes.FLOATS, dtypes.int32),
    public=False,
    samples=lambda rng: [
        *(Sample(s.inputs, s.params, differentiable=False) for s in _samples(rng)),
        Sample((_INFINITE,), _AT_BORDERS, special=True, note="-infinity at the border"),
        Sample((_MIXED,), _AT_BORDERS, special=True, note="several NaN"),
    ],
    tolerance=Tolerance(0.0),
)
