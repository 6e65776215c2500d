"""Cross entropy of rows of logits, fused with log-softmax, its gradient, and the mean of row losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import accumulator
from polyhal.hal.layout import Spec
from polyhal.hal.ops.declare import (
    Decompose,
    ErrorSample,
    IndexRange,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    declare,
    tensor_at,
)
from polyhal.hal.ops.indexing.along_axis import take_along_axis
from polyhal.hal.ops.layout.creation import arange
from polyhal.hal.ops.layout.regions import concat, pad
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import broadcast_to, reshape
from polyhal.hal.ops.pointwise.exponential import exp, log
from polyhal.hal.ops.pointwise.logic import equal
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.reductions.extrema import max_
from polyhal.hal.ops.reductions.sums import mean, sum_
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _np_logsumexp(x: Array) -> Any:
    """Return the logsumexp of rows in two parts: the largest element, and the logarithm of the sum relative to it."""
    top = np.max(x, axis=1, keepdims=True, initial=-np.inf)
    top = np.where(np.isneginf(top), 0, top)
    return np.concatenate([top, np.log(np.sum(np.exp(x - top), axis=1, keepdims=True))], axis=1)


def _picked(x: Array, target: Array, ignore_index: int) -> tuple[Any, Any]:
    """The logit of each row's class, NaN if that is out of range, and whether the row counts."""
    target = np.asarray(target)
    inside = (target >= 0) & (target < x.shape[1])
    chosen = np.take_along_axis(x, np.where(inside, target, 0)[:, None].astype(np.int64), 1)[:, 0]
    return np.where(inside, chosen, np.nan), target != ignore_index


def _cross_entropy_rows(logits: Array, target: Array, *, ignore_index: int = -100, label_smoothing: float = 0.0) -> Any:
    """Cross entropy of each row of `logits` (N, C) with class `target` (N,), in nats; ignored rows give 0.

    A class out of range gives NaN where it is not refused (see `polyhal.debug`).

    With smoothing e the target has probability 1 - e, plus e/C on every class. Returns the losses and, for the gradient,
    each row's logsumexp (N, 2) in two parts: the largest logit, and the logarithm of the sum relative to it, which adding a
    large logit would round away.
    """
    logits = np.asarray(logits)
    lse = _np_logsumexp(logits)
    logits, logarithm = logits - lse[:, :1], lse[:, 1]
    chosen, used = _picked(logits, target, ignore_index)
    loss = (1 - label_smoothing) * (logarithm - chosen)
    if label_smoothing:
        loss = loss + label_smoothing * (logarithm - np.mean(logits, axis=1))
    return np.where(used, loss, 0), lse


def checked_logits(specs: Specs, logits_at: int = 0) -> Spec:
    """The logits, which the target follows. Raises ValueError or TypeError unless the two fit together."""
    logits, target = tensor_at(specs, logits_at), tensor_at(specs, logits_at + 1)
    if logits.ndim != 2 or target.shape != logits.shape[:1]:
        raise ValueError(f"logits {logits.shape} and target {target.shape}; expected (N, C) and (N,)")
    if not target.dtype.is_integral:
        raise TypeError(f"target is {target.dtype.name}; expected integer classes")
    if not logits.dtype.is_floating_point:
        raise TypeError(f"logits are {logits.dtype.name}; expected floats")
    return logits


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    logits = checked_logits(specs)
    wide = accumulator(logits.dtype)
    return [(wide, logits.shape[:1]), (wide, (*logits.shape[:1], 2))]


def _inside(target: Any, classes: int) -> Any:
    return target.greater_equal(0).logical_and(target.less(classes))


def _decomposed(logits: TensorLike, target: Any, *, ignore_index: int, label_smoothing: float) -> Any:
    top = max_(logits, 1, True)
    top = where(equal(top, -math.inf), 0.0, top)
    logits = logits - top
    logarithm = log(sum_(exp(logits), 1, True))
    inside = reshape(_inside(target, logits.shape[1]), (-1, 1))
    chosen = take_along_axis(logits, where(inside, reshape(target, (-1, 1)), 0), 1)
    loss = (logarithm - where(inside, chosen, math.nan)) * (1.0 - label_smoothing)
    if label_smoothing:
        loss = loss + (logarithm - mean(logits, 1, True)) * label_smoothing
    return where(target.not_equal(ignore_index), reshape(loss, (-1,)), 0.0), concat((top, logarithm), 1)


def _cross_entropy_rows_grad(
    grad: Array,
    logits: Array,
    target: Array,
    lse: Array,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    columns: int = 0,
) -> Any:
    """Gradient of cross_entropy_rows with respect to the logits, padded with zeros to rows of `columns` if that is not 0.

    Kernels read aligned rows faster; a view of the classes is passed on.
    """
    logits = np.asarray(logits)
    used = np.asarray(target) != ignore_index
    classes = logits.shape[1]
    hot = (np.arange(classes)[None, :] == np.asarray(target)[:, None]).astype(logits.dtype)
    lse = np.asarray(lse)
    dlogits = (
        np.exp((logits - lse[:, :1]) - lse[:, 1:]) - (1 - label_smoothing) * hot - label_smoothing / max(classes, 1)
    )
    inside = (np.asarray(target) >= 0) & (np.asarray(target) < classes)
    dlogits = np.where(used, np.where(inside, grad, np.nan), 0)[:, None] * dlogits
    return np.pad(dlogits, ((0, 0), (0, columns - classes))) if columns else dlogits


def padded_rows(logits: Spec, columns: int) -> Output:
    """Return the gradient of logits (N, C), with rows of `columns` if that is not 0. Raises ValueError if they are shorter."""
    rows, classes = logits.shape
    if columns and columns < classes:
        raise ValueError(f"{columns} columns do not hold {classes} classes")
    return logits.dtype, (rows, columns or classes)


def _infer_grad(specs: Specs, params: Params) -> list[Output]:
    logits = checked_logits(specs, 1)
    lse = tensor_at(specs, 3)
    if lse.shape != (logits.shape[0], 2):
        raise ValueError(f"lse has shape {lse.shape}; expected {(logits.shape[0], 2)}")
    return [padded_rows(logits, params["columns"])]


def _grad_decomposed(
    g: Any, logits: TensorLike, target: Any, lse: TensorLike, *, ignore_index: int, label_smoothing: float, columns: int
) -> Any:
    classes = logits.shape[1]
    slope = where(target.not_equal(ignore_index), where(_inside(target, classes), g, math.nan), 0.0)
    hot = equal(reshape(arange(0, classes, 1, target.dtype), (1, -1)), reshape(target, (-1, 1)))
    top, logarithm = (slice_(lse, (0, i), (lse.shape[0], 1), (1, 1)) for i in range(2))
    dlogits = exp((logits - top) - logarithm) - (
        hot.cast(dtype=logits.dtype) * (1.0 - label_smoothing) + label_smoothing / max(classes, 1)
    )
    dlogits = reshape(slope, (-1, 1)) * dlogits
    return pad(dlogits, ((0, 0), (0, columns - classes))) if columns else dlogits


def labels_of(specs: Specs, params: Params) -> IndexRange:
    """Return the classes that a target, which follows the logits, may name."""
    return IndexRange(1, 0, tensor_at(specs, 0).shape[1], params["ignore_index"])


def _terms(specs: Specs, params: Params) -> int:
    spec = next(s for s in specs if isinstance(s, Spec) and s.ndim == 2)
    return spec.shape[1]


def row_samples(rng: np.random.Generator) -> list[Sample]:
    """Return samples of logits and target, with parameters."""
    out = []
    for n, c in [(1, 2), (5, 7), (33, 65), (3, 300)]:
        target = rng.integers(0, c, n)
        out.append(Sample((rng.uniform(-4, 4, (n, c)), target), {}))
        ignored = np.where(np.arange(n) % 2, target, 1)
        out.append(Sample((rng.uniform(-40, 40, (n, c)), ignored), {"ignore_index": 1, "label_smoothing": 0.1}))
    outside = np.resize([-100, 3000, -1, 5], 9)
    params = {"ignore_index": -100, "label_smoothing": 0.1}
    note = "long rows, with targets that are ignored or out of range"
    out.append(Sample((rng.uniform(-20, 20, (9, 3000)), outside), params, differentiable=False, note=note))
    return out


def _grad_samples(rng: np.random.Generator) -> list[Sample]:
    out = [
        Sample(
            (rng.uniform(-1, 1, len(s.inputs[1])), *s.inputs, _np_logsumexp(s.inputs[0])),
            s.params,
            differentiable=False,
        )
        for s in row_samples(rng)
    ]
    padded = out[-2]
    return [*out, Sample(padded.inputs, {**padded.params, "columns": 320}, differentiable=False)]


cross_entropy_rows_grad = declare(
    _cross_entropy_rows_grad,
    name="cross_entropy_rows_grad",
    family="loss",
    infer=_infer_grad,
    lowering=Decompose(_grad_decomposed),
    samples=_grad_samples,
    dtypes=dtypes.FLOATS,
    # exp turns the rounding of logits - lse, at most 80 on the samples, into a relative error of the probability.
    tolerance=Tolerance(96.0, floor=1.0),
    errors=[
        ErrorSample(
            (np.zeros(2), np.zeros((2, 3)), np.zeros(2, int), np.zeros((2, 2))), {"columns": 2}, ValueError, "2 columns"
        )
    ],
)


def _rule(
    g: TensorLike, logits: TensorLike, target: TensorLike, lse: TensorLike, *, ignore_index: int, label_smoothing: float
) -> Any:
    return cross_entropy_rows_grad(g, logits, target, lse, ignore_index, label_smoothing), None


cross_entropy_rows = declare(
    _cross_entropy_rows,
    name="cross_entropy_rows",
    family="loss",
    public=False,
    infer=_infer,
    outputs=("out", "lse"),
    lowering=Decompose(_decomposed),
    gradient=_rule,
    index_range=labels_of,
    samples=row_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(8.0, floor=80.0, terms=_terms),
    errors=[ErrorSample((np.zeros((2, 3)), np.zeros(3, int)), {}, ValueError, "expected \\(N, C\\) and \\(N,\\)")],
)


def _mean_loss(losses: Array, target: Array, *, ignore_index: int = -100) -> Any:
    """Mean of `losses` (N,) over the rows whose `target` (N,) is not `ignore_index`; the other losses are 0.

    Also returns 1 / (number of such rows), the scale of the mean's gradient: infinity if there is none.
    """
    count = np.sum(np.asarray(target) != ignore_index, dtype=np.asarray(losses).dtype)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(np.sum(losses), count), np.divide(1, count)


def _infer_mean_loss(specs: Specs, params: Params) -> list[Output]:
    losses, target = tensor_at(specs, 0), tensor_at(specs, 1)
    if losses.ndim != 1 or target.shape != losses.shape:
        raise ValueError(f"losses {losses.shape} and target {target.shape}; expected (N,) and (N,)")
    if not target.dtype.is_integral or not losses.dtype.is_floating_point:
        raise TypeError(f"losses are {losses.dtype.name} and target {target.dtype.name}; expected floats and integers")
    return [(losses.dtype, ()), (losses.dtype, ())]


def _mean_loss_decomposed(losses: Any, target: Any, *, ignore_index: int) -> Any:
    count = sum_(target.not_equal(ignore_index).cast(dtype=losses.dtype))
    return sum_(losses) / count, 1.0 / count


def _mean_loss_rule(g: TensorLike, g_scale: TensorLike | None, losses_spec: Spec, scale: TensorLike) -> Any:
    """Return the gradients. The scale does not depend on the losses, so that its gradient is 0."""
    return broadcast_to(g * scale, losses_spec.shape), None


def _mean_loss_samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    for n in (1, 5, 300, 3001):
        target = rng.integers(0, 9, n)
        target[: n // 3] = 4
        losses = np.where(target == 4, 0, rng.uniform(0, 2, n))
        out += [Sample((losses, target), {"ignore_index": 4}) for _ in range(n > 1)]
        out.append(Sample((rng.uniform(0, 2, n), target)))
    return [*out, Sample((np.zeros(3), np.full(3, -100)), special=True)]


mean_loss = declare(
    _mean_loss,
    name="mean_loss",
    family="loss",
    public=False,
    infer=_infer_mean_loss,
    outputs=("out", "scale"),
    lowering=Decompose(_mean_loss_decomposed),
    gradient=_mean_loss_rule,
    samples=_mean_loss_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(4.0, terms=lambda specs, params: tensor_at(specs, 0).size),
    errors=[ErrorSample((np.zeros(2), np.zeros(3, int)), {}, ValueError, "expected \\(N,\\) and \\(N,\\)")],
)
