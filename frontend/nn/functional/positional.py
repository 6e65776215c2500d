"""Layers and losses as PyTorch's top level spells them, where that differs from `nn.functional`.

There `reduction` follows the other arguments and may be a number (0 none, 1 mean, 2 sum), modes are positional, and weights
come before running statistics. `polyhal.batch_norm` and the others are these functions.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.hal.ops.returns import Returns, returns
from polyhal.nn import functional as F
from polyhal.nn.functional.reduction import Reduction
from polyhal.tensor import Tensor

_REDUCTIONS: tuple[Reduction, ...] = ("none", "mean", "sum")


def _reduction(value: int | Reduction) -> Reduction:
    return _REDUCTIONS[value] if isinstance(value, int) else value


def adaptive_max_pool1d(input: Tensor, output_size: int | Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the maxima of `output_size` windows of (N, C, L), and their positions (int64)."""
    values, positions = F.adaptive_max_pool1d(input, output_size, True)
    return values, positions


@returns(Returns.EITHER)
def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`nn.functional.dropout` with the mode by position."""
    return F.dropout(input, p, train)


@returns(Returns.EITHER)
def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Set whole channels (N, C, ...) to 0 with probability `p`."""
    flat = input.reshape((*input.shape[:2], -1))
    return F.dropout1d(flat, p, train).reshape(input.shape)


@returns(Returns.EITHER)
def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`nn.functional.alpha_dropout` with the mode by position."""
    return F.alpha_dropout(input, p, train)


@returns(Returns.EITHER)
def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`nn.functional.feature_alpha_dropout` with the mode by position."""
    return F.feature_alpha_dropout(input, p, train)


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    """`nn.functional.batch_norm` with weight and bias first. `cudnn_enabled` is accepted and unused."""
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    """`nn.functional.instance_norm` with weight and bias first. `cudnn_enabled` is accepted and unused."""
    return F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """`nn.functional.layer_norm`. `cudnn_enable` is accepted and unused."""
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """`nn.functional.group_norm`. `cudnn_enabled` is accepted and unused."""
    return F.group_norm(input, num_groups, weight, bias, eps)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int | Reduction = "mean",
) -> Tensor:
    """`nn.functional.binary_cross_entropy_with_logits` with `pos_weight` fourth."""
    how = _reduction(reduction)
    return F.binary_cross_entropy_with_logits(input, target, weight, reduction=how, pos_weight=pos_weight)


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int | Reduction = "mean"
) -> Tensor:
    """`nn.functional.cosine_embedding_loss` with `reduction` by position."""
    return F.cosine_embedding_loss(input1, input2, target, margin, reduction=_reduction(reduction))


def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: int | Reduction = "mean"
) -> Tensor:
    """`nn.functional.hinge_embedding_loss` with `reduction` by position."""
    return F.hinge_embedding_loss(input, target, margin, reduction=_reduction(reduction))


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int | Reduction = "mean"
) -> Tensor:
    """`nn.functional.margin_ranking_loss` with `reduction` by position."""
    return F.margin_ranking_loss(input1, input2, target, margin, reduction=_reduction(reduction))


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int | Reduction = "mean",
) -> Tensor:
    """`nn.functional.triplet_margin_loss` with `reduction` by position."""
    return F.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=_reduction(reduction))


def kl_div(input: Tensor, target: Tensor, reduction: int | Reduction = "mean", *, log_target: bool = False) -> Tensor:
    """`nn.functional.kl_div` with `reduction` by position."""
    return F.kl_div(input, target, reduction=_reduction(reduction), log_target=log_target)


def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int | Reduction
) -> Tensor:
    """`nn.functional.poisson_nll_loss` with all arguments by position."""
    return F.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=_reduction(reduction))


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: int | Reduction = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """`nn.functional.ctc_loss`, whose `reduction` may be a number."""
    return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, _reduction(reduction), zero_infinity)
