"""Losses of regressions: distances of numbers, and negative log likelihoods of distributions."""

from __future__ import annotations

import math
from typing import Any, Literal

from polyhal import functions as ops
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops.top_level import top_level_as
from polyhal.nn.functional.reduction import (
    Reduction,
    by_number,
    chosen_reduction,
    reduce_loss,
    same_shape,
    weighted_loss,
)
from polyhal.tensor import Tensor


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """`(input - target)**2`; `weight`, of the same shape, weighs elements, and the mean.

    >>> polyhal.nn.functional.mse_loss(polyhal.tensor([1.0, 4.0]), polyhal.tensor([1.0, 2.0])).item()
    2.0
    """
    same_shape("mse_loss", input, target)
    return weighted_loss(ops.square(input - target), weight, chosen_reduction(size_average, reduce, reduction))


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """`|input - target|`; `weight`, of the same shape, weighs elements, and the mean.

    >>> polyhal.nn.functional.l1_loss(polyhal.tensor([1.0, 2.0]), polyhal.tensor([1.0, 4.0])).item()
    1.0
    """
    same_shape("l1_loss", input, target)
    return weighted_loss(ops.abs(input - target), weight, chosen_reduction(size_average, reduce, reduction))


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    beta: float = 1.0,
) -> Tensor:
    """`d**2 / (2 beta)` for differences d below `beta`, `|d| - beta / 2` above. Source: Girshick, arXiv:1504.08083.

    Raises ShapeError unless both have one shape, and ValueError for a negative `beta`.
    """
    same_shape("smooth_l1_loss", input, target)
    reduction = chosen_reduction(size_average, reduce, reduction)
    if beta < 0:
        raise ValueError(message("smooth_l1_loss", f"beta is {beta}", expected="0 or more"))
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    size = ops.abs(input - target)
    share = ops.minimum(size if beta == 1.0 else size * (1.0 / beta), 1.0)  # half precision may not hold beta itself
    return reduce_loss(share * (size - share * (0.5 * beta)), reduction)


def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: Reduction = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """`d**2 / 2` for differences d up to `delta`, `delta * (|d| - delta / 2)` above.

    Source: Huber, Ann. Math. Statist. 35 (1964) 73-101. The result has the dtype of `input`. Raises ShapeError unless both
    have one shape, and ValueError unless `delta` is positive.
    """
    same_shape("huber_loss", input, target)
    if delta <= 0:
        raise ValueError(message("huber_loss", f"delta is {delta}", expected="a positive number"))
    losses = _rounded_off(input - target, delta)
    return weighted_loss(losses.to(input.dtype) if input.is_floating_point() else losses, weight, reduction)


def _rounded_off(difference: Tensor, limit: float) -> Tensor:
    """Return `d**2 / 2` up to the limit and a line above. The product has finite gradients at infinite differences."""
    size = ops.abs(difference)
    low = ops.minimum(size, limit)
    return low * (size - low * 0.5)


@top_level_as(
    lambda f: (
        lambda input, target, reduction="mean", *, log_target=False: f(
            input, target, reduction=by_number(reduction), log_target=log_target
        )
    )
)
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction | Literal["batchmean"] = "mean",
    log_target: bool = False,
) -> Tensor:
    """`target * (log(target) - input)` for log-probabilities `input`, in nats: the terms of a Kullback-Leibler divergence.

    With `log_target` the target is given as logarithms. "batchmean" divides the sum by the length of the first axis,
    which is the divergence per sample; "mean" divides by the number of elements.
    """
    if log_target:
        loss = ops.exp(target) * (target - input)
    else:
        # A probability of 0 has no information, and no gradient from it.
        some = ops.not_equal(target, 0)
        entropy = ops.where(some, target * ops.log(ops.where(some, target, 1.0)), 0.0)
        loss = entropy - target * input
    if reduction == "batchmean" and size_average is None and reduce is None:
        return ops.sum(loss) / max(loss.shape[0], 1) if loss.ndim else loss
    return reduce_loss(loss, chosen_reduction(size_average, reduce, reduction))  # type: ignore[arg-type]


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return negative log likelihood, in nats, of `target` under normal distributions of mean `input` and variance `var`.

    Without the constant `log(2 pi) / 2`, unless `full`. `var` is a number, has the shape of `input`, lacks its last axis
    or has length 1 there; variances below `eps` count as `eps`, whose gradient passes. Source: Nix and Weigend, ICNN
    1994. Raises ShapeError for a variance of a shape that does not match, and ValueError for a negative number.
    """
    variance: Any = var
    if isinstance(var, Tensor):
        if var.shape == input.shape[:-1] and var.ndim == input.ndim - 1:
            variance = ops.unsqueeze(var, -1)
        elif var.shape != input.shape and not (
            var.ndim == input.ndim
            and sum(a != b for a, b in zip(var.shape, input.shape, strict=True)) == 1
            and 1 in var.shape
        ):
            raise ShapeError(
                message("gaussian_nll_loss", f"input {input.shape} and var {var.shape}", expected="matching shapes")
            )
        # The bound changes only the value: the gradient is computed as if the variance were not bounded.
        variance = variance + ops.maximum(eps - variance.detach(), 0.0)
    else:
        if var < 0:
            raise ValueError(message("gaussian_nll_loss", f"var is {var}", expected="0 or more"))
        variance = ops.full(input.shape, max(var, eps), input.dtype, device=input.device)
    loss = (ops.log(variance) + ops.square(input - target) / variance) * 0.5
    return reduce_loss(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


@top_level_as(
    lambda f: (
        lambda input, target, log_input, full, eps, reduction: f(
            input, target, log_input, full, eps=eps, reduction=by_number(reduction)
        )
    )
)
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return negative log likelihood, in nats, of counts `target` under Poisson distributions of rate `exp(input)`.

    The rate is `input` itself without `log_input`. The term `log(target!)` is left out, or with `full` approximated by
    Stirling's formula for counts above 1.
    """
    loss = ops.exp(input) - target * input if log_input else input - target * ops.log(input + eps)
    if full:
        many = ops.less(1.0, target)
        count = ops.where(many, target, 1.0)
        stirling = count * ops.log(count) - count + 0.5 * ops.log(2 * math.pi * count)
        loss = loss + ops.where(many, stirling, 0.0)
    return reduce_loss(loss, chosen_reduction(size_average, reduce, reduction))
