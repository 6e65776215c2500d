"""Reductions of losses, and PyTorch's older arguments for them."""

from __future__ import annotations

from typing import Literal

from polyhal import functions as ops
from polyhal.hal.errors import ShapeError, message
from polyhal.tensor import Tensor

Reduction = Literal["mean", "sum", "none"]


def by_number(reduction: int | Reduction) -> Reduction:
    """Return a reduction that may be one of PyTorch's numbers: 0 none, 1 mean, 2 sum."""
    numbered: tuple[Reduction, ...] = ("none", "mean", "sum")
    return numbered[reduction] if isinstance(reduction, int) else reduction


def reduce_loss(loss: Tensor, reduction: Reduction) -> Tensor:
    """Mean, sum, or the loss of each element. Raises ValueError for other reductions."""
    if reduction == "mean":
        return ops.mean(loss)
    if reduction == "sum":
        return ops.sum(loss)
    if reduction == "none":
        return loss
    raise ValueError(message("loss", f"reduction {reduction!r}", expected="mean, sum or none"))


def weighted_loss(loss: Tensor, weight: Tensor | None, reduction: Reduction) -> Tensor:
    """Losses times weights; the mean divides by the sum of the weights."""
    if weight is None:
        return reduce_loss(loss, reduction)
    same_shape("loss", loss, weight)
    if reduction == "mean":
        return ops.sum(loss * weight) / ops.sum(weight)
    return reduce_loss(loss * weight, reduction)


def same_shape(op: str, x: Tensor, target: Tensor) -> None:
    """Raise ShapeError unless the shapes are equal: broadcasting in a loss is most often a mistake."""
    if x.shape != target.shape:
        raise ShapeError(
            message(
                op, f"input {x.shape} and target {target.shape}", expected="equal shapes", fix="reshape one of them"
            )
        )


def chosen_reduction(size_average: bool | None, reduce: bool | None, reduction: Reduction) -> Reduction:
    """Return the reduction, which PyTorch's older `size_average` and `reduce` override unless they are None."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"
