"""Losses that are computed along with their gradients: the logits are read once for both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import accumulator
from polyhal.hal.ops.declare import Decompose, ErrorSample, Output, Params, Sample, Specs, Tolerance, declare, tensor_at
from polyhal.hal.ops.layout.creation import arange
from polyhal.hal.ops.layout.views import broadcast_to, reshape
from polyhal.hal.ops.nn.loss import (
    checked_logits,
    cross_entropy_rows,
    cross_entropy_rows_grad,
    labels_of,
    mean_loss,
    padded_rows,
    row_samples,
)
from polyhal.hal.ops.pointwise.logic import equal
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.reductions.sums import sum_
from polyhal.hal.ops.tensor_like import Array, TensorLike

_rows, _rows_grad, _mean = (f.op.reference for f in (cross_entropy_rows, cross_entropy_rows_grad, mean_loss))


def _cross_entropy_rows_and_grad(
    logits: Array,
    target: Array,
    grad: Array,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    columns: int = 0,
) -> Any:
    """Cross entropy of each row of `logits` (N, C), and its gradient for `grad` (N,) with respect to the logits.

    The passes of captured steps join `cross_entropy_rows` and `cross_entropy_rows_grad`, whose parameters it has.
    """
    params: dict[str, Any] = {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
    losses, lse = _rows(logits, target, **params)
    # The statistics of 16-bit logits are float32, as between the two ops.
    wide = accumulator(dtypes.as_dtype(np.asarray(logits).dtype)).numpy
    return losses, _rows_grad(grad, logits, target, lse.astype(wide), **params, columns=columns)


def _infer_rows_and_grad(specs: Specs, params: Params) -> list[Output]:
    logits, grad = checked_logits(specs), tensor_at(specs, 2)
    if grad.shape != logits.shape[:1]:
        raise ValueError(f"grad has shape {grad.shape}; expected {logits.shape[:1]}")
    return [(accumulator(logits.dtype), logits.shape[:1]), padded_rows(logits, params["columns"])]


def _rows_and_grad_decomposed(
    logits: TensorLike, target: TensorLike, grad: TensorLike, *, ignore_index: int, label_smoothing: float, columns: int
) -> Any:
    losses, lse = cross_entropy_rows(logits, target, ignore_index, label_smoothing)
    return losses, cross_entropy_rows_grad(grad, logits, target, lse, ignore_index, label_smoothing, columns)


def _rows_and_grad_samples(rng: np.random.Generator) -> list[Sample]:
    out = [
        Sample((*s.inputs, rng.uniform(-1, 1, len(s.inputs[1]))), s.params, differentiable=False)
        for s in row_samples(rng)
    ]
    padded = out[-2]
    return [*out, Sample(padded.inputs, {**padded.params, "columns": 320}, differentiable=False)]


cross_entropy_rows_and_grad = declare(
    _cross_entropy_rows_and_grad,
    name="cross_entropy_rows_and_grad",
    family="loss",
    public=False,
    infer=_infer_rows_and_grad,
    outputs=("out", "slope"),
    lowering=Decompose(_rows_and_grad_decomposed),
    index_range=labels_of,
    samples=_rows_and_grad_samples,
    dtypes=dtypes.FLOATS,
    # As cross_entropy_rows_grad, whose probabilities carry the rounding of logits - lse.
    tolerance=Tolerance(96.0, floor=1.0),
    errors=[
        ErrorSample((np.zeros((2, 3)), np.zeros(2, int), np.zeros(3)), {}, ValueError, "grad has shape \\(3,\\)"),
        ErrorSample((np.zeros((2, 3)), np.zeros(2, int), np.zeros(2)), {"columns": 2}, ValueError, "2 columns"),
    ],
)


def _mean_cross_entropy(logits: Array, target: Array, *, ignore_index: int = -100, label_smoothing: float = 0.0) -> Any:
    """Mean of cross_entropy_rows over the rows that count, and its gradient with respect to the logits (N, C).

    For few logits, whose gradient costs less than a launch.
    """
    params: dict[str, Any] = {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
    losses, lse = _rows(logits, target, **params)
    mean_, scale = _mean(losses, target, ignore_index=ignore_index)
    return mean_, _rows_grad(np.broadcast_to(scale, losses.shape), logits, target, lse, **params)


def _mean_cross_entropy_samples(rng: np.random.Generator) -> list[Sample]:
    def ignored(s: Sample) -> bool:
        return bool((s.inputs[1] == s.params.get("ignore_index", -100)).all())

    # The mean of no rows is NaN, which has no finite differences.
    return [replace(s, special=True) if ignored(s) else s for s in row_samples(rng)]


def _infer_mean_cross_entropy(specs: Specs, params: Params) -> list[Output]:
    logits = checked_logits(specs)
    return [(accumulator(logits.dtype), ()), (logits.dtype, logits.shape)]


def _mean_cross_entropy_decomposed(
    logits: TensorLike, target: TensorLike, *, ignore_index: int, label_smoothing: float
) -> Any:
    losses, lse = cross_entropy_rows(logits, target, ignore_index, label_smoothing)
    mean_, scale = mean_loss(losses, target, ignore_index)
    each = broadcast_to(scale, losses.shape)
    return mean_, cross_entropy_rows_grad(each, logits, target, lse, ignore_index, label_smoothing)


def _mean_cross_entropy_rule(
    g: TensorLike,
    g_slope: TensorLike | None,
    target: Any,
    slope: TensorLike,
    *,
    ignore_index: int,
    label_smoothing: float,
) -> Any:
    """Return the gradients. A second one needs the probabilities, which follow from the slope: the logits are not kept."""
    if g_slope is None:
        return g * slope, None
    classes = slope.shape[1]
    used = reshape(target.not_equal(ignore_index), (-1, 1))
    count = sum_(used.cast(dtype=slope.dtype))
    hot = equal(reshape(arange(0, classes, 1, target.dtype), (1, -1)), reshape(target, (-1, 1)))
    p = slope * count + (hot.cast(dtype=slope.dtype) * (1.0 - label_smoothing) + label_smoothing / classes)
    spread = p * (g_slope - sum_(p * g_slope, 1, True)) / count
    return g * slope + where(used, spread, 0.0), None


mean_cross_entropy = declare(
    _mean_cross_entropy,
    name="mean_cross_entropy",
    family="loss",
    public=False,
    infer=_infer_mean_cross_entropy,
    outputs=("out", "slope"),
    lowering=Decompose(_mean_cross_entropy_decomposed),
    gradient=_mean_cross_entropy_rule,
    index_range=labels_of,
    samples=_mean_cross_entropy_samples,
    dtypes=dtypes.FLOATS,
    # As cross_entropy_rows_grad, whose probabilities carry the rounding of logits - lse.
    tolerance=Tolerance(96.0, floor=1.0),
    errors=[ErrorSample((np.zeros((2, 3)), np.zeros(3, int)), {}, ValueError, "expected \\(N, C\\) and \\(N,\\)")],
)
