"""Losses with a margin: what is right by more than the margin costs nothing."""

from __future__ import annotations

from collections.abc import Callable

from polyhal import functions as ops
from polyhal.hal import dtypes
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops.top_level import top_level_as
from polyhal.nn.functional.distance import cosine_similarity, pairwise_distance
from polyhal.nn.functional.reduction import Reduction, by_number, chosen_reduction, reduce_loss, same_shape
from polyhal.tensor import Tensor


def _hinge(x: Tensor) -> Tensor:
    """`max(x, 0)`, whose gradient at 0 is 1, as in PyTorch."""
    return ops.clip(x, 0.0)


@top_level_as(
    lambda f: (
        lambda input1, input2, target, margin=0.0, reduction="mean": f(
            input1, input2, target, margin, reduction=by_number(reduction)
        )
    )
)
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """`max(0, margin - target * (input1 - input2))`: with target 1 `input1` should be larger, with -1 `input2`.

    Raises ShapeError unless all three have as many axes.
    """
    if not input1.ndim == input2.ndim == target.ndim:
        raise ShapeError(
            message(
                "margin_ranking_loss",
                f"inputs {input1.shape} and {input2.shape}, target {target.shape}",
                expected="as many axes each",
            )
        )
    loss = _hinge(margin - target * (input1 - input2))
    return reduce_loss(loss, chosen_reduction(size_average, reduce, reduction))


@top_level_as(
    lambda f: (
        lambda input, target, margin=1.0, reduction="mean": f(input, target, margin, reduction=by_number(reduction))
    )
)
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the distance `input` where `target` is 1, and `max(0, margin - input)` where it is -1. The shapes broadcast."""
    far = ops.where(ops.equal(target, 1), 0.0, _hinge(margin - input))
    near = ops.where(ops.equal(target, -1), 0.0, input)
    return reduce_loss(far + near, chosen_reduction(size_average, reduce, reduction))


def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """`log(1 + exp(-target * input))` for targets 1 and -1. Raises ShapeError unless both have one shape."""
    same_shape("soft_margin_loss", input, target)
    return reduce_loss(ops.softplus(-target * input), chosen_reduction(size_average, reduce, reduction))


@top_level_as(
    lambda f: (
        lambda input1, input2, target, margin=0.0, reduction="mean": f(
            input1, input2, target, margin, reduction=by_number(reduction)
        )
    )
)
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """`1 - cos(input1, input2)` where `target` is 1, and `max(0, cos(...) - margin)` where it is -1.

    Inputs (N, D) and target (N,), or (D,) and (). Raises ShapeError for other shapes.
    """
    if target.ndim + 1 != input1.ndim or input1.ndim != input2.ndim or target.ndim > 1:
        raise ShapeError(
            message(
                "cosine_embedding_loss",
                f"inputs {input1.shape} and {input2.shape}, target {target.shape}",
                expected="(N, D) and (N,), or (D,) and ()",
            )
        )
    squares = [ops.sum(x * x, -1) + 1e-12 for x in (input1, input2)]
    cosine = ops.sum(input1 * input2, -1) / ops.sqrt(squares[0] * squares[1])
    near = ops.where(ops.equal(target, 1), 1.0 - cosine, 0.0)
    far = ops.where(ops.equal(target, -1), _hinge(cosine - margin), 0.0)
    return reduce_loss(near + far, chosen_reduction(size_average, reduce, reduction))


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """`sum_i max(0, margin - input[target] + input[i])**p / C` over the other classes i, for scores (N, C) or (C,).

    `p` is 1 or 2, and `weight` (C,) weighs the terms by the target's class. Raises ValueError for another `p`, and
    ShapeError for other shapes.
    """
    if p not in (1, 2):
        raise ValueError(message("multi_margin_loss", f"p is {p}", expected="1 or 2"))
    rows = ops.reshape(input, (-1, input.shape[-1] if input.ndim else 1))
    classes = ops.reshape(target, (-1, 1))
    if input.ndim > 2 or classes.shape[0] != rows.shape[0]:
        raise ShapeError(
            message("multi_margin_loss", f"input {input.shape} and target {target.shape}", expected="(N, C) and (N,)")
        )
    count = rows.shape[1]
    gaps = ops.relu(rows - ops.take_along_axis(rows, classes, 1) + margin)
    gaps = ops.square(gaps) if p == 2 else gaps
    if weight is not None:
        gaps = gaps * ops.embedding(ops.reshape(weight, (-1, 1)), ops.reshape(classes, (-1,)))
    others = ops.not_equal(ops.arange(0, count, 1, classes.dtype, device=rows.device), classes)
    loss = ops.sum(ops.where(others, gaps, 0.0), 1) * (1.0 / max(count, 1))
    loss = loss if target.ndim else ops.reshape(loss, ())
    return reduce_loss(loss, chosen_reduction(size_average, reduce, reduction))


def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """`sum max(0, 1 - input[j] + input[i]) / C` over the target's classes j and all other classes i: (N, C) or (C,).

    A row of `target` lists classes; a negative number ends the list.
    """
    same_shape("multilabel_margin_loss", input, target)
    count = input.shape[-1] if input.ndim else 1
    rows, labels = ops.reshape(input, (-1, count)), ops.reshape(target, (-1, count))
    ended = ops.cumsum(ops.less(labels, 0).cast(dtype=dtypes.int32), 1)
    listed = ops.equal(ended, 0)
    safe = ops.where(listed, labels, 0)
    classes = ops.arange(0, count, 1, labels.dtype, device=labels.device)
    # (N, class, place in the list)
    hot = ops.logical_and(ops.equal(ops.unsqueeze(safe, 1), ops.reshape(classes, (-1, 1))), ops.unsqueeze(listed, 1))
    is_target = ops.any(hot, 2)
    chosen = ops.take_along_axis(rows, safe, 1)
    gaps = ops.relu(ops.unsqueeze(rows, 2) - ops.unsqueeze(chosen, 1) + 1.0)
    counted = ops.logical_and(ops.unsqueeze(listed, 1), ops.unsqueeze(ops.logical_not(is_target), 2))
    loss = ops.sum(ops.where(counted, gaps, 0.0), (1, 2)) * (1.0 / max(count, 1))
    loss = loss if input.ndim > 1 else ops.reshape(loss, ())
    return reduce_loss(loss, chosen_reduction(size_average, reduce, reduction))


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Mean over the classes (last axis) of the cross entropy of `sigmoid(input)` with labels 0 and 1, weighed by `weight`."""
    same_shape("multilabel_soft_margin_loss", input, target)
    loss = target * ops.softplus(-input) + (1.0 - target) * ops.softplus(input)
    loss = ops.mean(loss if weight is None else loss * weight, -1)
    return reduce_loss(loss, chosen_reduction(size_average, reduce, reduction))


@top_level_as(
    lambda f: (
        lambda anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=False, reduction="mean": f(
            anchor, positive, negative, margin, p, eps, swap, reduction=by_number(reduction)
        )
    )
)
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """`max(0, |anchor - positive| - |anchor - negative| + margin)` with p-norms over the last axis.

    `swap` uses |positive - negative| where that is smaller (Balntas et al., BMVC 2016). Raises ValueError unless
    `margin` is positive.
    """
    if margin <= 0:
        raise ValueError(message("triplet_margin_loss", f"margin is {margin}", expected="a positive number"))
    return triplet_margin_with_distance_loss(
        anchor,
        positive,
        negative,
        distance_function=lambda a, b: pairwise_distance(a, b, p, eps),
        margin=margin,
        swap=swap,
        reduction=chosen_reduction(size_average, reduce, reduction),
    )


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: Reduction = "mean",
) -> Tensor:
    """`triplet_margin_loss` with any distance; `pairwise_distance` unless given.

    The three have one shape, (N, D) for the default distance. Raises ValueError unless `margin` is positive.
    """
    if margin <= 0:
        problem = f"margin is {margin}"
        raise ValueError(message("triplet_margin_with_distance_loss", problem, expected="a positive number"))
    distance = distance_function or pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = ops.minimum(far, distance(positive, negative))
    return reduce_loss(_hinge(near - far + margin), reduction)


__all__ = [
    "cosine_embedding_loss",
    "cosine_similarity",
    "hinge_embedding_loss",
    "margin_ranking_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]
