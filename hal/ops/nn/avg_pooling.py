"""Average pooling over two axes, and its gradient."""

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
from polyhal.hal.ops.layout.creation import arange
from polyhal.hal.ops.layout.slicing import unslice
from polyhal.hal.ops.layout.sliding_windows import windows
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.nn.pooling_in_numpy import reduce_windows, spread_windows, window_axes
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
from polyhal.hal.ops.nn.window_shape import Pair, output_length, require_floats
from polyhal.hal.ops.pointwise.selection import clip
from polyhal.hal.ops.reductions.sums import sum_
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _np_counts(
    shape: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: Any,
    padding: tuple[int, ...],
    include: bool,
    ceil_mode: bool,
    divisor: float | None,
) -> Any:
    """Divisors of the windows' sums: (OH, OW), or one number."""
    if divisor is not None:
        return float(divisor)
    counts = []
    for n, k, s, p in zip(shape[2:], kernel, stride, padding, strict=True):
        start = np.arange(output_length(n, k, s, p, 1, ceil_mode)) * s - p
        low, high = (-p, n + p) if include else (0, n)
        counts.append(np.minimum(start + k, high) - np.maximum(start, low))
    return counts[0][:, None] * counts[1]


def _avg_pool2d(
    x: Array,
    *,
    kernel: tuple[int, ...],
    stride: tuple[int, ...] | None = None,
    padding: tuple[int, ...] = (0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: float | None = None,
) -> Any:
    """Mean of each window; padding counts as zeros, or not at all without `count_include_pad`.

    With `ceil_mode` the last windows may reach beyond the padding, where nothing counts. A `divisor` replaces the counts.
    """
    x = np.asarray(x)
    total = x
    for axis in window_axes(x.shape, kernel, stride, padding, (1, 1), ceil_mode):
        total = reduce_windows(np.add, total, axis, 0)
    return total / _np_counts(x.shape, kernel, stride, padding, count_include_pad, ceil_mode, divisor)


def _normalize(params: dict[str, Any]) -> None:
    params["count_include_pad"] = bool(params["count_include_pad"])
    if params["divisor"] is not None and not params["divisor"]:
        raise ValueError("divisor 0; expected a number other than 0")


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    require_floats("avg_pool2d", specs)
    spec = image(specs)
    _normalize(params)
    return [(spec.dtype, pooled(spec.shape, params))]


def _divided(
    total: TensorLike,
    shape: tuple[int, ...],
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    include: bool,
    ceil_mode: bool,
    divisor: float | None,
) -> Any:
    """`total` divided by the number of elements that each window of an image of `shape` counts."""
    frame = borders(shape, kernel, stride, padding, (1, 1), ceil_mode)
    if divisor is not None or all(w == ((p, p) if include else (0, 0)) for w, p in zip(frame, padding, strict=True)):
        return total * (1.0 / (kernel[0] * kernel[1] if divisor is None else divisor))
    for axis, (n, k, s, p) in enumerate(zip(shape[2:], kernel, stride, padding, strict=True)):
        length = total.shape[2 + axis]
        start = arange(-p, length * s - p, s, total.dtype)
        low, high = (-p, n + p) if include else (0, n)
        counts = clip(start + k, None, high) - clip(start, low, None)
        total = total / reshape(counts, (length, 1) if axis == 0 else (length,))
    return total


def _decomposed(
    x: TensorLike,
    *,
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: float | None,
) -> Any:
    frame = borders(x.shape, kernel, stride, padding, (1, 1), ceil_mode)
    total = sum_(windows(padded(x, frame, 0), kernel, stride, (1, 1)), (4, 5))
    return _divided(total, x.shape, kernel, stride, padding, count_include_pad, ceil_mode, divisor)


def _avg_pool2d_grad(
    grad: Array,
    *,
    shape: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...] | None = None,
    padding: tuple[int, ...] = (0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: float | None = None,
) -> Any:
    """Gradient of avg_pool2d with respect to its input of `shape`."""
    grad = np.asarray(grad)
    each = grad / _np_counts(shape, kernel, stride, padding, count_include_pad, ceil_mode, divisor)
    for axis in window_axes(shape, kernel, stride, padding, (1, 1), ceil_mode):
        each = spread_windows(each, axis)
    return each


def _infer_grad(specs: Specs, params: dict[str, Any]) -> list[Output]:
    require_floats("avg_pool2d_grad", specs)
    g = image(specs)
    _normalize(params)
    params["shape"] = tuple(params["shape"])
    expected = pooled(params["shape"], params)
    if g.shape != expected:
        raise ValueError(f"the gradient has shape {g.shape}; expected {expected}")
    return [(g.dtype, params["shape"])]


def _grad_decomposed(
    grad: TensorLike,
    *,
    shape: tuple[int, ...],
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: float | None,
) -> Any:
    each = _divided(grad, shape, kernel, stride, padding, count_include_pad, ceil_mode, divisor)
    frame = borders(shape, kernel, stride, padding, (1, 1), ceil_mode)
    total = None
    for starts, steps in positions(kernel, stride, (1, 1)):
        part = unslice(each, padded_shape(shape, frame), starts, steps)
        total = part if total is None else total + part
    return without_borders(total, frame, shape)


# --- declarations ---------------------------------------------------------------------------------------------------


def _variants() -> list[tuple[tuple[int, ...], dict[str, Any]]]:
    """Sample shapes and parameters, with padding counted and not."""
    plain = [
        (s, {**p, "count_include_pad": include, "divisor": None})
        for s, p in CASES
        for include in ((True, False) if p["padding"] != (0, 0) else (True,))
    ]
    return [*plain, (CASES[2][0], {**CASES[2][1], "count_include_pad": True, "divisor": 5})]


avg_pool2d_grad = declare(
    _avg_pool2d_grad,
    name="avg_pool2d_grad",
    family="pooling",
    infer=_infer_grad,
    lowering=Decompose(_grad_decomposed),
    dtypes=dtypes.FLOATS,
    gradient=lambda g, *, kernel, stride, padding, count_include_pad, ceil_mode, divisor: avg_pool2d(
        g, kernel, stride, padding, ceil_mode, count_include_pad, divisor
    ),
    samples=lambda rng: [Sample((rng.uniform(-1, 1, pooled_sample(s, p)),), {"shape": s, **p}) for s, p in _variants()],
    tolerance=Tolerance(4.0, floor=1.0, terms=kernel_size),
)
avg_pool2d: OpFunction = declare(
    _avg_pool2d,
    name="avg_pool2d",
    family="pooling",
    infer=_infer,
    lowering=Decompose(_decomposed),
    dtypes=dtypes.FLOATS,
    errors=[
        ErrorSample(
            (np.zeros((1, 1, 2, 2)),), {"kernel": (3, 3), "stride": None, "padding": (0, 0)}, ValueError, "does not fit"
        )
    ],
    gradient=flat_in("x")(
        lambda g, x_spec, *, kernel, stride, padding, count_include_pad, ceil_mode, divisor: avg_pool2d_grad(
            g, x_spec.shape, kernel, stride, padding, ceil_mode, count_include_pad, divisor
        )
    ),
    samples=lambda rng: [Sample((rng.uniform(-1, 1, s),), p) for s, p in _variants()],
    tolerance=Tolerance(4.0, floor=1.0, terms=kernel_size),
)
