"""Sliding windows of a tensor as a view, and `fold_windows`, which adds them up where they overlap: each is the other's
gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec, View
from polyhal.hal.ops import batching
from polyhal.hal.ops.declare import (
    AsView,
    Decompose,
    ErrorSample,
    OpFunction,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    declare,
    first_tensor,
)
from polyhal.hal.ops.layout.slicing import slice_, unslice
from polyhal.hal.ops.layout.views import EXACT, reshape
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _windows(x: Array, *, kernel: Any, stride: Any, dilation: Any) -> Any:
    """Sliding windows over the last len(kernel) axes: (..., H, W) to (..., OH, OW, KH, KW). A view."""
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    n = len(kernel)
    views = np.lib.stride_tricks.sliding_window_view(np.asarray(x), spans, axis=tuple(range(-n, 0)))
    picks = [slice(None, None, s) for s in stride] + [slice(None, None, d) for d in dilation]
    out: np.ndarray = views[(Ellipsis, *picks)]  # type: ignore[arg-type]
    return out


def _infer_windows(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    kernel, stride, dilation = (tuple(params[k]) for k in ("kernel", "stride", "dilation"))
    n = len(kernel)
    if spec.ndim < n:
        raise ValueError(f"a tensor of shape {spec.shape} has no {n} axes to slide over")
    out = []
    for size, k, s, d in zip(spec.shape[spec.ndim - n :], kernel, stride, dilation, strict=True):
        span = (k - 1) * d + 1
        if size < span:
            raise ValueError(f"a window of {span} does not fit in an axis of length {size}")
        out.append((size - span) // s + 1)
    params.update(kernel=kernel, stride=stride, dilation=dilation)
    return [(spec.dtype, (*spec.shape[: spec.ndim - n], *out, *kernel))]


def _windows_view(spec: Spec, params: Params) -> View:
    (_, shape), n = _infer_windows((spec,), dict(params))[0], len(params["kernel"])
    tail = spec.strides[spec.ndim - n :]
    steps = tuple(t * s for t, s in zip(tail, params["stride"], strict=True))
    inner = tuple(t * d for t, d in zip(tail, params["dilation"], strict=True))
    return View(shape, (*spec.strides[: spec.ndim - n], *steps, *inner))


windows: OpFunction = declare(
    _windows,
    name="windows",
    family="movement",
    infer=_infer_windows,
    batching=batching.leading,
    lowering=AsView(_windows_view),
    public=False,
    gradient=lambda g, x_spec, *, kernel, stride, dilation: fold_windows(
        g, x_spec.shape[x_spec.ndim - len(kernel) :], stride, dilation
    ),
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (2, 6, 7)),), {"kernel": (3, 2), "stride": (2, 1), "dilation": (1, 2)}),
        Sample((rng.uniform(-1, 1, (5,)),), {"kernel": (2,), "stride": (1,), "dilation": (1,)}),
    ],
    errors=[
        ErrorSample((np.zeros((3,)),), {"kernel": (4,), "stride": (1,), "dilation": (1,)}, ValueError, "does not fit")
    ],
    dtypes=dtypes.ALL,
    tolerance=EXACT,
)


def _fold_windows(x: Array, *, lengths: Any, stride: Any, dilation: Any) -> Any:
    """The sum of windows (..., OH, OW, KH, KW) at their places in axes of `lengths`: (..., H, W)."""
    x, n = np.asarray(x), len(lengths)
    kernel, counts = x.shape[x.ndim - n :], x.shape[x.ndim - 2 * n : x.ndim - n]
    out = np.zeros((*x.shape[: x.ndim - 2 * n], *lengths), x.dtype)
    for position in np.ndindex(*kernel):
        places = [
            slice(p * d, p * d + (c - 1) * s + 1, s)
            for p, d, c, s in zip(position, dilation, counts, stride, strict=True)
        ]
        index: Any = (Ellipsis, *places)
        out[index] += x[(Ellipsis, *position)]
    return out


def _infer_fold(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    lengths, stride, dilation = (tuple(params[k]) for k in ("lengths", "stride", "dilation"))
    n = len(lengths)
    if spec.ndim < 2 * n:
        raise ValueError(f"shape {spec.shape} has no {2 * n} axes of windows")
    lead, counts, kernel = (
        spec.shape[: spec.ndim - 2 * n],
        spec.shape[spec.ndim - 2 * n : spec.ndim - n],
        spec.shape[-n:],
    )
    whole = Spec(spec.dtype, lengths, (0,) * n)
    expected = _infer_windows((whole,), {"kernel": kernel, "stride": stride, "dilation": dilation})[0][1][:n]
    if counts != expected:
        raise ValueError(f"{counts} windows; axes of lengths {lengths} have {expected}")
    params.update(lengths=lengths, stride=stride, dilation=dilation)
    return [(spec.dtype, (*lead, *lengths))]


def _fold_decomposed(
    x: TensorLike, *, lengths: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> Any:
    """The sum over kernel positions of the windows' elements at that position, put where they were read."""
    n = len(lengths)
    lead, kernel = x.shape[: x.ndim - 2 * n], x.shape[x.ndim - n :]
    inner = (1,) * n
    total = None
    for position in np.ndindex(*kernel):
        at = slice_(x, ((0,) * (x.ndim - n)) + position, (*x.shape[: x.ndim - n], *inner), (1,) * x.ndim)
        at = reshape(at, x.shape[: x.ndim - n])
        starts = (0,) * len(lead) + tuple(p * d for p, d in zip(position, dilation, strict=True))
        placed = unslice(at, (*lead, *lengths), starts, (1,) * len(lead) + stride)
        total = placed if total is None else total + placed
    return total


def _kernel_size(specs: Specs, params: Params) -> int:
    return int(np.prod(first_tensor(specs).shape[-len(params["lengths"]) :]))


fold_windows: OpFunction = declare(
    _fold_windows,
    name="fold_windows",
    family="movement",
    infer=_infer_fold,
    lowering=Decompose(_fold_decomposed),
    public=False,
    gradient=lambda g, x_spec, *, lengths, stride, dilation: windows(
        g, x_spec.shape[x_spec.ndim - len(lengths) :], stride, dilation
    ),
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (2, 2, 6, 3, 2)),), {"lengths": (6, 8), "stride": (2, 1), "dilation": (1, 2)}),
        Sample((rng.uniform(-1, 1, (4, 2)),), {"lengths": (5,), "stride": (1,), "dilation": (1,)}),
    ],
    errors=[
        ErrorSample(
            (np.zeros((3, 2)),), {"lengths": (5,), "stride": (1,), "dilation": (1,)}, ValueError, "windows; axes"
        )
    ],
    dtypes=(*dtypes.FLOATS, dtypes.int32, dtypes.int64),
    tolerance=Tolerance(1.0, terms=_kernel_size),
)
