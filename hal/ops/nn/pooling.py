"""Max and average pooling over two axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.ops.declare import (
    Decompose,
    ErrorSample,
    OpFunction,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    declare,
    tensor_at,
)
from polyhal.hal.ops.layout.regions import pad
from polyhal.hal.ops.layout.slicing import slice_, unslice, windows
from polyhal.hal.ops.layout.views import broadcast_to
from polyhal.hal.ops.nn.window_shape import Pair, output_length, pair
from polyhal.hal.ops.pointwise.logic import equal, logical_and, logical_not, not_equal
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.reductions.extrema import max_
from polyhal.hal.ops.reductions.sums import sum_


def _image(specs: Specs, i: int = 0) -> Spec:
    """The input of position `i`. Raises ValueError unless it is a batch of images."""
    spec = tensor_at(specs, i)
    if spec.ndim != 4 or not spec.dtype.is_floating_point:
        raise ValueError(f"got {spec}; expected floats of shape (N, C, H, W)")
    return spec


def _window(params: dict[str, Any]) -> tuple[Pair, Pair, Pair, Pair]:
    kernel = params["kernel"] = pair(params["kernel"], "kernel", 1)
    params["stride"] = kernel if params["stride"] is None else pair(params["stride"], "stride", 1)
    params["padding"] = pair(params["padding"], "padding", 0)
    if "dilation" in params:
        params["dilation"] = pair(params["dilation"], "dilation", 1)
    if any(2 * p > k for p, k in zip(params["padding"], kernel, strict=True)):
        raise ValueError(f"padding {params['padding']} is more than half of kernel {kernel}")
    return kernel, params["stride"], params["padding"], params.get("dilation", (1, 1))


def _pooled(shape: tuple[int, ...], params: dict[str, Any]) -> tuple[int, ...]:
    return (*shape[:2], *(output_length(*v) for v in zip(shape[2:], *_window(params), strict=True)))


def _np_windows(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, value: float) -> Any:
    x = np.pad(np.asarray(x), ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2), constant_values=value)
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, spans, axis=(2, 3))
    return view[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]


def _positions(kernel: Pair, stride: Pair, dilation: Pair, lengths: tuple[int, ...]) -> Any:
    """Starts and steps of the slice of the padded image that each kernel position reads."""
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            yield (0, 0, i * dilation[0], j * dilation[1]), (1, 1, *stride)


def _padded(x: Any, padding: Pair, value: Any) -> Any:
    return x if padding == (0, 0) else pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2), value)


def _padded_shape(shape: tuple[int, ...], padding: Pair) -> tuple[int, ...]:
    return (*shape[:2], shape[2] + 2 * padding[0], shape[3] + 2 * padding[1])


# --- max ------------------------------------------------------------------------------------------------------------


def _max_pool2d(x: Any, *, kernel: Any, stride: Any = None, padding: Any = (0, 0), dilation: Any = (1, 1)) -> Any:
    """Largest element of each window; NaN if any is NaN. Padding counts as -infinity."""
    return _np_windows(x, kernel, stride, padding, dilation, -np.inf).max(axis=(4, 5))


def _infer_max(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = _image(specs)
    return [(spec.dtype, _pooled(spec.shape, params))]


def _max_decomposed(x: Any, *, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Any:
    return max_(windows(_padded(x, padding, -float("inf")), kernel, stride, dilation), (4, 5))


def _max_pool2d_grad(
    grad: Any, x: Any, *, kernel: Any, stride: Any = None, padding: Any = (0, 0), dilation: Any = (1, 1)
) -> Any:
    """Gradient of max_pool2d: each window's gradient goes to its first largest element, row by row."""
    x = np.asarray(x)
    view = _np_windows(x, kernel, stride, padding, dilation, -np.inf)
    n, c, oh, ow, r, s = view.shape
    best = np.argmax(view.reshape(n, c, oh, ow, r * s), axis=-1)
    rows = np.arange(oh)[:, None] * stride[0] + best // s * dilation[0]
    columns = np.arange(ow)[None, :] * stride[1] + best % s * dilation[1]
    out = np.zeros((n, c, x.shape[2] + 2 * padding[0], x.shape[3] + 2 * padding[1]), np.asarray(grad).dtype)
    np.add.at(out, (np.arange(n)[:, None, None, None], np.arange(c)[None, :, None, None], rows, columns), grad)
    return out[:, :, padding[0] : padding[0] + x.shape[2], padding[1] : padding[1] + x.shape[3]]


def _infer_max_grad(specs: Specs, params: dict[str, Any]) -> list[Output]:
    g, x = _image(specs), _image(specs, 1)
    expected = _pooled(x.shape, params)
    if g.shape != expected:
        raise ValueError(f"the gradient has shape {g.shape}; expected {expected}")
    return [(x.dtype, x.shape)]


def _max_grad_decomposed(grad: Any, x: Any, *, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Any:
    padded = _padded(x, padding, -float("inf"))
    best = max_(windows(padded, kernel, stride, dilation), (4, 5))
    free = equal(grad, grad).logical_or(True)
    total = None
    for starts, steps in _positions(kernel, stride, dilation, grad.shape):
        x_at = slice_(padded, starts, grad.shape, steps)
        hit = logical_and(equal(x_at, best).logical_or(not_equal(x_at, x_at)), free)
        free = logical_and(free, logical_not(hit))
        part = unslice(where(hit, grad, 0.0), padded.shape, starts, steps)
        total = part if total is None else total + part
    return slice_(total, (0, 0, *padding), x.shape, (1, 1, 1, 1))


# --- average --------------------------------------------------------------------------------------------------------


def _np_counts(shape: tuple[int, ...], kernel: Any, stride: Any, padding: Any, include: bool) -> Any:
    if include:
        return float(kernel[0] * kernel[1])
    ones = np.ones((1, 1, *shape[2:]))
    return _np_windows(ones, kernel, stride, padding, (1, 1), 0).sum(axis=(4, 5))


def _avg_pool2d(
    x: Any, *, kernel: Any, stride: Any = None, padding: Any = (0, 0), count_include_pad: bool = True
) -> Any:
    """Mean of each window; padding counts as zeros, or not at all without `count_include_pad`."""
    x = np.asarray(x)
    total = _np_windows(x, kernel, stride, padding, (1, 1), 0).sum(axis=(4, 5))
    return total / _np_counts(x.shape, kernel, stride, padding, count_include_pad)


def _infer_avg(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = _image(specs)
    return [(spec.dtype, _pooled(spec.shape, params))]


def _counted(
    total: Any, x: Any, shape: tuple[int, ...], kernel: Pair, stride: Pair, padding: Pair, include: bool
) -> Any:
    """`total` divided by the number of elements that each window of an image of `shape` counts."""
    if include or padding == (0, 0):
        return total * (1.0 / (kernel[0] * kernel[1]))
    plane = slice_(x, (0, 0, 0, 0), (1, 1, 1, 1), (1, 1, 1, 1)) * 0.0
    ones = where(equal(plane, plane), 1.0, 1.0).cast(dtype=total.dtype)
    ones = _padded(broadcast_to(ones, (1, 1, *shape[2:])), padding, 0)
    return total / sum_(windows(ones, kernel, stride, (1, 1)), (4, 5))


def _avg_decomposed(x: Any, *, kernel: Pair, stride: Pair, padding: Pair, count_include_pad: bool) -> Any:
    total = sum_(windows(_padded(x, padding, 0), kernel, stride, (1, 1)), (4, 5))
    return _counted(total, x, x.shape, kernel, stride, padding, count_include_pad)


def _avg_pool2d_grad(
    grad: Any, *, shape: Any, kernel: Any, stride: Any = None, padding: Any = (0, 0), count_include_pad: bool = True
) -> Any:
    """Gradient of avg_pool2d with respect to its input of `shape`."""
    grad = np.asarray(grad)
    each = grad / _np_counts(shape, kernel, stride, padding, count_include_pad)
    oh, ow = grad.shape[2:]
    out = np.zeros((*shape[:2], shape[2] + 2 * padding[0], shape[3] + 2 * padding[1]), each.dtype)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            out[:, :, i : i + stride[0] * (oh - 1) + 1 : stride[0], j : j + stride[1] * (ow - 1) + 1 : stride[1]] += (
                each
            )
    return out[:, :, padding[0] : padding[0] + shape[2], padding[1] : padding[1] + shape[3]]


def _infer_avg_grad(specs: Specs, params: dict[str, Any]) -> list[Output]:
    g = _image(specs)
    params["shape"] = tuple(params["shape"])
    expected = _pooled(params["shape"], params)
    if g.shape != expected:
        raise ValueError(f"the gradient has shape {g.shape}; expected {expected}")
    return [(g.dtype, params["shape"])]


def _avg_grad_decomposed(
    grad: Any, *, shape: tuple[int, ...], kernel: Pair, stride: Pair, padding: Pair, count_include_pad: bool
) -> Any:
    each = _counted(grad, grad, shape, kernel, stride, padding, count_include_pad)
    padded = _padded_shape(shape, padding)
    total = None
    for starts, steps in _positions(kernel, stride, (1, 1), grad.shape):
        part = unslice(each, padded, starts, steps)
        total = part if total is None else total + part
    return slice_(total, (0, 0, *padding), shape, (1, 1, 1, 1))


# --- declarations ---------------------------------------------------------------------------------------------------

_CASES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 6, 8), {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0)}),
    ((1, 2, 7, 5), {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 1)}),
    ((2, 1, 5, 5), {"kernel": (3, 3), "stride": (1, 1), "padding": (1, 1)}),
    ((1, 3, 4, 4), {"kernel": (4, 4), "stride": (4, 4), "padding": (0, 0)}),
]


def _distinct(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Values far enough apart that finite differences do not change which one is largest."""
    return rng.permutation(int(np.prod(shape))).reshape(shape) * 0.01 - 0.3


def _pooled_shape(shape: tuple[int, ...], params: dict[str, Any]) -> tuple[int, ...]:
    return _pooled(shape, {"dilation": (1, 1), **params})


def _terms(specs: Specs, params: Params) -> int:
    return int(params["kernel"][0] * params["kernel"][1])


_ERRORS = [
    ErrorSample(
        (np.zeros((1, 1, 2, 2)),), {"kernel": (3, 3), "stride": None, "padding": (0, 0)}, ValueError, "does not fit"
    )
]

max_pool2d_grad = declare(
    _max_pool2d_grad,
    name="max_pool2d_grad",
    family="pooling",
    infer=_infer_max_grad,
    lowering=Decompose(_max_grad_decomposed),
    dtypes=dtypes.FLOATS,
    samples=lambda rng: [
        Sample(
            (rng.uniform(-1, 1, _pooled_shape(s, p)), _distinct(rng, s)),
            {**p, "dilation": (1, 1)},
            differentiable=False,
        )
        for s, p in _CASES
    ],
    tolerance=Tolerance(2.0, terms=_terms),
)
max_pool2d = declare(
    _max_pool2d,
    name="max_pool2d",
    family="pooling",
    infer=_infer_max,
    lowering=Decompose(_max_decomposed),
    dtypes=dtypes.FLOATS,
    errors=_ERRORS,
    gradient=lambda g, x, *, kernel, stride, padding, dilation: max_pool2d_grad(
        g, x, kernel, stride, padding, dilation
    ),
    samples=lambda rng: (
        [Sample((_distinct(rng, s),), {**p, "dilation": (1, 1)}) for s, p in _CASES]
        + [
            Sample(
                (_distinct(rng, (1, 1, 7, 8)),),
                {"kernel": (2, 3), "stride": (1, 2), "padding": (0, 1), "dilation": (2, 2)},
            )
        ]
    ),
    tolerance=Tolerance(0.0),
)
avg_pool2d_grad = declare(
    _avg_pool2d_grad,
    name="avg_pool2d_grad",
    family="pooling",
    infer=_infer_avg_grad,
    lowering=Decompose(_avg_grad_decomposed),
    dtypes=dtypes.FLOATS,
    gradient=lambda g, *, kernel, stride, padding, count_include_pad: avg_pool2d(
        g, kernel, stride, padding, count_include_pad
    ),
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, _pooled_shape(s, p)),), {"shape": s, **p, "count_include_pad": bool(i % 2)})
        for i, (s, p) in enumerate(_CASES)
    ],
    tolerance=Tolerance(4.0, floor=1.0, terms=_terms),
)
avg_pool2d: OpFunction = declare(
    _avg_pool2d,
    name="avg_pool2d",
    family="pooling",
    infer=_infer_avg,
    lowering=Decompose(_avg_decomposed),
    dtypes=dtypes.FLOATS,
    errors=_ERRORS,
    gradient=lambda g, x_spec, *, kernel, stride, padding, count_include_pad: avg_pool2d_grad(
        g, x_spec.shape, kernel, stride, padding, count_include_pad
    ),
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, s),), {**p, "count_include_pad": include})
        for s, p in _CASES
        for include in (True, False)
    ],
    tolerance=Tolerance(4.0, floor=1.0, terms=_terms),
)
