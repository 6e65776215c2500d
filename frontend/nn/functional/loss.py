"""Loss functions."""

from __future__ import annotations

import math
from typing import Literal

from polyhal import functions as ops
from polyhal.amp.autocast import is_autocast_enabled
from polyhal.hal.dtypes import accumulator
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.tensor import Tensor

_rows_loss = FUNCTIONS["cross_entropy_rows"]
_mean_loss = FUNCTIONS["mean_loss"]
_mean_cross_entropy = FUNCTIONS["mean_cross_entropy"]
_FEW_LOGITS = 1 << 15
"""Up to this number of logits, the gradient is computed along with the loss."""

Reduction = Literal["mean", "sum", "none"]


def _reduce(loss: Tensor, reduction: Reduction) -> Tensor:
    if reduction == "mean":
        return ops.mean(loss)
    if reduction == "sum":
        return ops.sum(loss)
    if reduction == "none":
        return loss
    raise ValueError(message("loss", f"reduction {reduction!r}", expected="mean, sum or none"))


def _like(loss: Tensor, x: Tensor) -> Tensor:
    """Cast a float32 loss to the dtype of its input, unless `autocast` is on, which keeps losses in float32."""
    return loss if is_autocast_enabled() else loss.to(x.dtype)


def _same_shape(op: str, x: Tensor, target: Tensor) -> None:
    if x.shape != target.shape:
        raise ShapeError(
            message(
                op, f"input {x.shape} and target {target.shape}", expected="equal shapes", fix="reshape one of them"
            )
        )


def mse_loss(input: Tensor, target: Tensor, reduction: Reduction = "mean") -> Tensor:  # noqa: A002
    """`(input - target)**2`."""
    _same_shape("mse_loss", input, target)
    return _reduce(ops.square(input - target), reduction)


def l1_loss(input: Tensor, target: Tensor, reduction: Reduction = "mean") -> Tensor:  # noqa: A002
    """`|input - target|`."""
    _same_shape("l1_loss", input, target)
    return _reduce(ops.abs(input - target), reduction)


def smooth_l1_loss(input: Tensor, target: Tensor, reduction: Reduction = "mean", beta: float = 1.0) -> Tensor:  # noqa: A002
    """`d**2 / (2 beta)` for differences d below `beta`, `|d| - beta / 2` above. Source: Girshick, arXiv:1504.08083."""
    _same_shape("smooth_l1_loss", input, target)
    if beta < 0:
        raise ValueError(message("smooth_l1_loss", f"beta is {beta}", expected="0 or more"))
    if beta == 0:
        return l1_loss(input, target, reduction)
    size = ops.abs(input - target)
    return _reduce(ops.where(ops.less(size, beta), ops.square(size) * (0.5 / beta), size - 0.5 * beta), reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Cross entropy of `sigmoid(input)` with probabilities `target`, in nats, without overflow.

    `weight` multiplies each element's loss, `pos_weight` the part that belongs to positive targets; both broadcast.
    """
    _same_shape("binary_cross_entropy_with_logits", input, target)
    tail = ops.softplus(-input)
    if pos_weight is not None:
        tail = tail * ((pos_weight - 1.0) * target + 1.0)
    loss = (1.0 - target) * input + tail
    return _reduce(loss if weight is None else loss * weight, reduction)


def _by_rows(op: str, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Scores (N, C, d1, ...) as rows (N*d1*..., C), targets (N, d1, ...) to match.

    Scores (C,) go with a single target.
    """
    expected = x.shape[1:] if x.ndim == 1 else (x.shape[0], *x.shape[2:])
    if x.ndim == 0 or target.shape != expected:
        raise ShapeError(
            message(op, f"input {x.shape} and target {target.shape}", expected="(N, C, d1, ...) and (N, d1, ...)")
        )
    if x.ndim <= 2:
        return ops.reshape(x, (-1, x.shape[-1])) if x.ndim == 1 else x, ops.reshape(
            target, (-1,)
        ) if target.ndim != 1 else target
    rows = ops.permute(x, (0, *range(2, x.ndim), 1))
    return ops.reshape(rows, (math.prod(expected), x.shape[1])), ops.reshape(target, (-1,))


def _weighted(losses: Tensor, weights: Tensor, shape: tuple[int, ...], reduction: Reduction) -> Tensor:
    """Reduce row losses, which are multiplied by `weights` already; the mean divides by the sum of the weights."""
    if reduction == "mean":
        return ops.sum(losses) / ops.sum(weights)
    if losses.shape != shape:
        losses = ops.reshape(losses, shape)
    return _reduce(losses, reduction)


def nll_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """`-input[n, target[n]]` for log-probabilities (N, C, d1, ...) and integer classes (N, d1, ...).

    Targets equal to `ignore_index` do not count. `weight` (C,) weighs classes; the mean is over the weights used.
    """
    rows, classes = _by_rows("nll_loss", input, target)
    used = ops.not_equal(classes, ignore_index)
    safe = ops.where(used, classes, 0)
    counts = ops.cast(used, accumulator(rows.dtype))
    if weight is not None:
        counts = counts * ops.reshape(ops.embedding(ops.reshape(weight, (-1, 1)), safe), (-1,))
    chosen = ops.reshape(ops.take_along_axis(rows, ops.reshape(safe, (-1, 1)), 1), (-1,))
    # `where` rather than a product alone: an ignored row may have -inf, and 0 * inf is NaN.
    return _like(_weighted(ops.where(used, -chosen * counts, 0.0), counts, target.shape, reduction), input)


def cross_entropy(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy in nats of logits (N, C, d1, ...) with integer classes (N, d1, ...).

    Targets equal to `ignore_index` do not count: the mean is over the others (and over their weights, if `weight`
    (C,) weighs the classes). With `label_smoothing` e the target has probability 1 - e + e/C. Source: Szegedy et al.,
    arXiv:1512.00567.
    """
    if not 0 <= label_smoothing <= 1:
        raise ValueError(message("cross_entropy", f"label_smoothing is {label_smoothing}", expected="0 to 1"))
    if weight is not None:
        return _weighted_cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)
    rows, classes = _by_rows("cross_entropy", input, target)
    params = (ignore_index, float(label_smoothing))
    # Not for half precision, where the gradient must be multiplied by a loss scale before it is rounded.
    if reduction == "mean" and rows.requires_grad and rows.size <= _FEW_LOGITS and rows.dtype.itemsize > 2:
        return _like(_mean_cross_entropy(rows, classes, *params)[0], input)
    losses = _rows_loss(rows, classes, *params)[0]
    if reduction == "mean":
        out = _mean_loss(losses, classes, ignore_index)[0]
    else:
        out = _reduce(ops.reshape(losses, target.shape) if losses.shape != target.shape else losses, reduction)
    # Half-precision losses are summed in float32 and rounded once: a batch may have more rows than float16 can count.
    return _like(out, input)


def _weighted_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor, ignore_index: int, reduction: Reduction, smoothing: float
) -> Tensor:
    rows, classes = _by_rows("cross_entropy", x, target)
    log_p = ops.log_softmax(rows, 1)
    used = ops.not_equal(classes, ignore_index)
    safe = ops.where(used, classes, 0)
    counts = ops.cast(used, accumulator(rows.dtype)) * ops.reshape(
        ops.embedding(ops.reshape(weight, (-1, 1)), safe), (-1,)
    )
    losses = -ops.reshape(ops.take_along_axis(log_p, ops.reshape(safe, (-1, 1)), 1), (-1,)) * counts
    if smoothing:
        even = -ops.sum(log_p * weight, 1) * (smoothing / rows.shape[1])
        losses = losses * (1 - smoothing) + even
    return _like(_weighted(ops.where(used, losses, 0.0), counts, target.shape, reduction), x)
