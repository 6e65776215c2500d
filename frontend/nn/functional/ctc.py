"""Connectionist temporal classification."""

from __future__ import annotations

import math
from collections.abc import Sequence

from polyhal import functions as ops
from polyhal.hal import dtypes
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.top_level import top_level_as
from polyhal.nn.functional.reduction import Reduction, by_number, reduce_loss
from polyhal.tensor import Tensor, as_tensor

_ctc = FUNCTIONS["ctc_losses"]


@top_level_as(
    lambda f: (
        lambda log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False: f(
            log_probs, targets, input_lengths, target_lengths, blank, by_number(reduction), zero_infinity
        )
    )
)
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int] | int,
    target_lengths: Tensor | Sequence[int] | int,
    blank: int = 0,
    reduction: Reduction = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Negative log likelihood, in nats, of label sequences summed over their alignments with (T, N, C) log-probabilities.

    `targets` are (N, S), or all sequences one after the other; without N, `log_probs` is (T, C) and `targets` (S,).
    "mean" divides each loss by the length of its target (at least 1) first. A target that is too long has an infinite
    loss, or with `zero_infinity` a loss of 0 without gradient. The gradient is the derivative of the formula: it agrees with
    PyTorch's, which assumes a log-softmax before, after that log-softmax. Source: Graves et al., ICML 2006. Raises
    ShapeError for other shapes of `log_probs`.
    """
    batched = log_probs.ndim == 3
    if log_probs.ndim not in (2, 3):
        raise ShapeError(message("ctc_loss", f"log_probs {log_probs.shape}", expected="(T, N, C) or (T, C)"))
    if not batched:
        log_probs = ops.unsqueeze(log_probs, 1)
        targets = ops.reshape(targets, (1, -1))
    steps = _lengths(input_lengths, log_probs)
    labels = _lengths(target_lengths, log_probs)
    if targets.ndim == 1:
        targets = _padded(targets, labels)
    losses: Tensor = _ctc(log_probs, targets, steps, labels, blank)
    if zero_infinity:
        losses = ops.where(ops.equal(losses, math.inf), 0.0, losses)
    if reduction == "mean":
        losses = losses / ops.maximum(labels, 1).to(losses.dtype)
    return reduce_loss(losses if batched else ops.reshape(losses, ()), reduction)


def _lengths(lengths: Tensor | Sequence[int] | int, log_probs: Tensor) -> Tensor:
    """Return lengths (N,) as int32."""
    x = as_tensor(lengths, device=log_probs.device)
    if x.size != log_probs.shape[1]:
        raise ShapeError(message("ctc_loss", f"lengths {x.shape}", expected=f"({log_probs.shape[1]},)"))
    return ops.reshape(x, (-1,)).to(dtypes.int32)


def _padded(targets: Tensor, lengths: Tensor) -> Tensor:
    """Convert concatenated sequences to rows (N, longest). Waits for the lengths."""
    counts = lengths.tolist()
    width = max(counts, default=0)
    ends = ops.cumsum(lengths, 0).to(dtypes.int32)
    columns = ops.arange(0, width, 1, dtypes.int32, device=targets.device)
    positions = ops.unsqueeze(ends - lengths, 1) + columns
    if not targets.size:
        return ops.full(positions.shape, 0, targets.dtype, device=targets.device)
    inside = ops.less(columns, ops.unsqueeze(lengths, 1))
    return ops.take(targets, ops.reshape(ops.where(inside, positions, 0), (-1,)), 0).reshape(positions.shape)
