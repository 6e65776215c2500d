"""Losses of classifiers: cross entropy of classes, of class probabilities and of independent labels."""

from __future__ import annotations

import math

from polyhal import functions as ops
from polyhal.hal.dtypes import accumulator
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.indexing.range_errors import names_range_errors
from polyhal.hal.ops.top_level import top_level_as
from polyhal.mixed_precision import is_autocast_enabled
from polyhal.nn.functional.activation import log_softmax
from polyhal.nn.functional.linear import linear
from polyhal.nn.functional.reduction import Reduction, by_number, chosen_reduction, reduce_loss, same_shape
from polyhal.tensor import Tensor

_binary_cross_entropy = FUNCTIONS["binary_cross_entropy"]
_rows_loss = FUNCTIONS["cross_entropy_rows"]
_mean_loss = FUNCTIONS["mean_loss"]
_mean_cross_entropy = FUNCTIONS["mean_cross_entropy"]
_FEW_LOGITS = 1 << 15
"""Up to this number of logits, the gradient is computed along with the loss."""


def _like(loss: Tensor, x: Tensor) -> Tensor:
    """Cast a float32 loss to the dtype of its input, unless `autocast` is on, which keeps losses in float32."""
    return loss if is_autocast_enabled() else loss.to(x.dtype)


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross entropy of probabilities `input` with probabilities `target`, in nats; logarithms are at least -100.

    `weight` multiplies each element's loss. Prefer `binary_cross_entropy_with_logits`, which cannot lose precision.
    """
    same_shape("binary_cross_entropy", input, target)
    loss: Tensor = _binary_cross_entropy(input, target)
    return reduce_loss(loss if weight is None else loss * weight, chosen_reduction(size_average, reduce, reduction))


@top_level_as(
    lambda f: (
        lambda input, target, weight=None, pos_weight=None, reduction="mean": f(
            input, target, weight, reduction=by_number(reduction), pos_weight=pos_weight
        )
    )
)
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Cross entropy of `sigmoid(input)` with probabilities `target`, in nats, without overflow.

    `weight` multiplies each element's loss, `pos_weight` the part that belongs to positive targets; both broadcast.
    """
    same_shape("binary_cross_entropy_with_logits", input, target)
    tail = ops.softplus(-input)
    if pos_weight is not None:
        tail = tail * ((pos_weight - 1.0) * target + 1.0)
    loss = (1.0 - target) * input + tail
    return reduce_loss(loss if weight is None else loss * weight, chosen_reduction(size_average, reduce, reduction))


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
    return reduce_loss(losses, reduction)


@names_range_errors
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """`-input[n, target[n]]` for log-probabilities (N, C, d1, ...) and integer classes (N, d1, ...).

    Targets equal to `ignore_index` do not count. `weight` (C,) weighs classes; the mean is over the weights used.
    """
    reduction = chosen_reduction(size_average, reduce, reduction)
    rows, classes = _by_rows("nll_loss", input, target)
    used = ops.not_equal(classes, ignore_index)
    safe = ops.where(used, classes, 0)
    counts = ops.cast(used, accumulator(rows.dtype))
    if weight is not None:
        counts = counts * ops.reshape(ops.embedding(ops.reshape(weight, (-1, 1)), safe), (-1,))
    chosen = ops.reshape(ops.take_along_axis(rows, ops.reshape(safe, (-1, 1)), 1), (-1,))
    # `where` rather than only a product: an ignored row may have -inf, and 0 * inf is NaN.
    return _like(_weighted(ops.where(used, -chosen * counts, 0.0), counts, target.shape, reduction), input)


@names_range_errors
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy in nats of logits (N, C, d1, ...) with integer classes (N, d1, ...) or class probabilities (N, C, d1, ...).

    Classes equal to `ignore_index` do not count: the mean is over the others (and over their weights, if `weight`
    (C,) weighs the classes); with probabilities it is over all of (N, d1, ...). With `label_smoothing` e the target's
    probabilities are multiplied by 1 - e, and e/C is added to each class. Source: Szegedy et al., arXiv:1512.00567.
    Raises ValueError unless `label_smoothing` is from 0 to 1.

    >>> loss = polyhal.nn.functional.cross_entropy(polyhal.zeros(2, 4), polyhal.tensor([1, 3]))
    >>> round(loss.item(), 4)  # log(4)
    1.3863
    """
    reduction = chosen_reduction(size_average, reduce, reduction)
    if not 0 <= label_smoothing <= 1:
        raise ValueError(message("cross_entropy", f"label_smoothing is {label_smoothing}", expected="0 to 1"))
    if target.dtype.is_floating_point:
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
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
        out = reduce_loss(ops.reshape(losses, target.shape) if losses.shape != target.shape else losses, reduction)
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


def _soft_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: Reduction, smoothing: float
) -> Tensor:
    """Cross entropy with probabilities of the shape of the logits."""
    same_shape("cross_entropy", x, target)
    axis = 0 if x.ndim == 1 else 1
    if smoothing:
        target = target * (1 - smoothing) + smoothing / x.shape[axis]
    terms = log_softmax(x, axis) * target
    if weight is not None:
        terms = terms * ops.reshape(weight, (-1, *(1,) * (x.ndim - axis - 1)))
    return reduce_loss(-ops.sum(terms, axis), reduction)


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: object = None,
) -> Tensor:
    """`cross_entropy(linear(input, linear_weight, linear_bias), target)` for `input` (N, in) or (in,).

    `linear_weight` (C, d1, ..., in) makes logits (N, C, d1, ...). `options`, which chooses how PyTorch splits the
    computation, has no effect.
    """
    shape = linear_weight.shape[:-1]
    rows = ops.reshape(linear_weight, (-1, linear_weight.shape[-1]))
    logits = linear(input, rows, None if linear_bias is None else ops.reshape(linear_bias, (-1,)))
    if len(shape) > 1:
        logits = ops.reshape(logits, (*input.shape[:-1], *shape))
    ignored = -100 if ignore_index is None else ignore_index
    return cross_entropy(
        logits, target, weight, ignore_index=ignored, reduction=reduction, label_smoothing=label_smoothing
    )
