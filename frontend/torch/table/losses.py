"""Losses and their gradients. Reductions are 0 for none, 1 for the mean and 2 for the sum."""

from __future__ import annotations

from typing import Any

from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, UnsupportedArgumentsError, cast

MEAN = 1


def _reduced(losses: Any, reduction: int) -> Any:
    return losses if reduction == 0 else F["mean" if reduction == MEAN else "sum"](losses)


@aten("mse_loss")
def mse_loss(x: Any, y: Any, reduction: int = MEAN) -> Any:
    return _reduced(F["square"](x - y), reduction)


@aten("mse_loss_backward")
def mse_loss_backward(grad: Any, x: Any, y: Any, reduction: int) -> Any:
    return (x - y) * (grad * (2 / max(x.size, 1) if reduction == MEAN else 2.0))


def _rows(x: Any, target: Any, ignore_index: int) -> tuple[Any, Any, Any]:
    """Rows of scores, the class of each (0 if it is ignored) and whether it counts."""
    if x.ndim == 1:
        x, target = F["reshape"](x, (1, -1)), F["reshape"](target, (1,))
    if x.ndim != 2:
        raise UnsupportedArgumentsError
    counts = F["not_equal"](target, ignore_index)
    return x, F["where"](counts, target, 0), counts


def _weights(weight: Any, safe: Any, counts: Any, dtype: Any) -> Any:
    """The weight of each row's loss."""
    out = cast(counts, dtype)
    return out if weight is None else out * F["take_along_axis"](weight, safe, 0)


@aten("nll_loss_forward")
def nll_loss(x: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    """The loss and the sum of the weights."""
    rows, safe, counts = _rows(x, target, ignore_index)
    scale = _weights(weight, safe, counts, x.dtype)
    chosen = F["reshape"](F["take_along_axis"](rows, F["reshape"](safe, (-1, 1)), 1), (-1,))
    losses = F["where"](counts, -chosen * scale, 0.0)
    total = F["sum"](scale)
    if reduction == 0:
        return (losses if x.ndim == 2 else F["reshape"](losses, ())), total
    return (F["sum"](losses) / total if reduction == MEAN else F["sum"](losses)), total


@aten("nll_loss_backward")
def nll_loss_backward(
    grad: Any, x: Any, target: Any, weight: Any, reduction: int, ignore_index: int, total_weight: Any
) -> Any:
    rows, safe, counts = _rows(x, target, ignore_index)
    slope = -_weights(weight, safe, counts, x.dtype) * (grad / total_weight if reduction == MEAN else grad)
    classes = F["arange"](0, rows.shape[1], 1, safe.dtype, device=x.device)
    chosen = F["equal"](F["reshape"](classes, (1, -1)), F["reshape"](safe, (-1, 1)))
    return F["reshape"](F["where"](chosen, F["reshape"](slope, (-1, 1)), 0.0), x.shape)
