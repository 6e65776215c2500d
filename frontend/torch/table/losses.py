"""Losses and their gradients. Reductions are 0 for none, 1 for the mean and 2 for the sum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from polyhal.hal.dtypes import accumulator
from polyhal.torch.registration import aten
from polyhal.torch.table.formulas import formula
from polyhal.torch.table.operands import F, UnsupportedArgumentsError, cast, zeros

if TYPE_CHECKING:
    from polyhal.hal.dtypes import DType
    from polyhal.tensor import Tensor

NONE, MEAN = 0, 1
REDUCTIONS: tuple[Literal["none", "mean", "sum"], ...] = ("none", "mean", "sum")


def reduced(losses: Tensor, reduction: int) -> Any:
    """Return the losses, their mean or their sum."""
    return losses if reduction == NONE else F["mean" if reduction == MEAN else "sum"](losses)


def _share(losses: Tensor, reduction: int) -> float:
    """Return the factor of each element's loss in the reduced loss."""
    return 1 / max(losses.size, 1) if reduction == MEAN else 1.0


# --- regression losses ----------------------------------------------------------------------------------------------


@aten("mse_loss")
def mse_loss(x: Tensor, y: Tensor, reduction: int = MEAN) -> Any:
    return reduced(_squares(x, y), reduction)


@formula
def _squares(x: Tensor, y: Tensor) -> Any:
    return F["square"](x - y)


@aten("mse_loss_backward")
def mse_loss_backward(grad: Tensor, x: Tensor, y: Tensor, reduction: int) -> Any:
    return _square_slopes(grad, x, y, 2 * _share(x, reduction))


@formula
def _square_slopes(grad: Tensor, x: Tensor, y: Tensor, share: float) -> Any:
    return (x - y) * (grad * share)


@aten("smooth_l1_loss")
def smooth_l1_loss(x: Tensor, y: Tensor, reduction: int = MEAN, beta: float = 1.0) -> Any:
    return reduced(_smooth_losses(x, y, beta), reduction)


@formula
def _smooth_losses(x: Tensor, y: Tensor, beta: float) -> Any:
    size = F["abs"](x - y)
    return F["where"](size < beta, F["square"](size) * (0.5 / beta), size - 0.5 * beta) if beta > 0 else size


@aten("smooth_l1_loss_backward")
def smooth_l1_loss_backward(grad: Tensor, x: Tensor, y: Tensor, reduction: int, beta: float) -> Any:
    return _smooth_slopes(grad, x, y, _share(x, reduction), beta)


@formula
def _smooth_slopes(grad: Tensor, x: Tensor, y: Tensor, share: float, beta: float) -> Any:
    gap = x - y
    return (F["clip"](gap * (1 / beta), -1.0, 1.0) if beta > 0 else F["sign"](gap)) * (grad * share)


@aten("huber_loss")
def huber_loss(x: Tensor, y: Tensor, reduction: int = MEAN, delta: float = 1.0) -> Any:
    losses = _huber_losses(x, y, delta)
    return reduced(cast(losses, x.dtype) if x.is_floating_point() else losses, reduction)


@formula
def _huber_losses(x: Tensor, y: Tensor, delta: float) -> Any:
    size = F["abs"](x - y)
    return F["where"](size < delta, F["square"](size) * 0.5, (size - 0.5 * delta) * delta)


@aten("huber_loss_backward")
def huber_loss_backward(grad: Tensor, x: Tensor, y: Tensor, reduction: int, delta: float) -> Any:
    return _huber_slopes(grad, x, y, _share(x, reduction), delta)


@formula
def _huber_slopes(grad: Tensor, x: Tensor, y: Tensor, share: float, delta: float) -> Any:
    return F["clip"](x - y, -delta, delta) * (grad * share)


# --- losses of probabilities and margins ----------------------------------------------------------------------------


@aten("binary_cross_entropy")
def binary_cross_entropy(x: Tensor, target: Tensor, weight: Any = None, reduction: int = MEAN) -> Any:
    losses = F["binary_cross_entropy"](x, target)
    return reduced(losses if weight is None else losses * weight, reduction)


@aten("binary_cross_entropy_backward")
def binary_cross_entropy_backward(
    grad: Tensor, x: Tensor, target: Tensor, weight: Any = None, reduction: int = MEAN
) -> Any:
    weights = () if weight is None else (weight,)
    return _entropy_slopes(grad, x, target, _share(x, reduction), *weights)


@formula
def _entropy_slopes(grad: Tensor, x: Tensor, target: Tensor, share: float, weight: Any = None) -> Any:
    slope = (x - target) / F["maximum"]((1.0 - x) * x, 1e-12)
    return (slope if weight is None else slope * weight) * (grad * share)


@aten("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    x: Tensor, target: Tensor, weight: Any = None, pos_weight: Any = None, reduction: int = MEAN
) -> Any:
    return reduced(_logit_losses(x, target, weight, pos_weight), reduction)


@formula
def _logit_losses(x: Tensor, target: Tensor, weight: Any, pos_weight: Any) -> Any:
    tail = F["softplus"](-x)
    if pos_weight is not None:
        tail = tail * ((pos_weight - 1.0) * target + 1.0)
    losses = (1.0 - target) * x + tail
    return losses if weight is None else losses * weight


@aten("soft_margin_loss")
def soft_margin_loss(x: Tensor, target: Tensor, reduction: int = MEAN) -> Any:
    return reduced(_margin_losses(x, target), reduction)


@formula
def _margin_losses(x: Tensor, target: Tensor) -> Any:
    return F["softplus"](-target * x)


@aten("soft_margin_loss_backward")
def soft_margin_loss_backward(grad: Tensor, x: Tensor, target: Tensor, reduction: int) -> Any:
    return _margin_slopes(grad, x, target, _share(x, reduction))


@formula
def _margin_slopes(grad: Tensor, x: Tensor, target: Tensor, share: float) -> Any:
    return -target * F["sigmoid"](-target * x) * (grad * share)


# --- negative log likelihood ----------------------------------------------------------------------------------------


def _classes(x: Tensor, target: Tensor, ignore_index: int) -> tuple[int, Any, Any]:
    """Return the axis of classes, the class of each element (0 if ignored) with that axis, and whether the element counts."""
    axis = min(x.ndim - 1, 1)
    if target.shape != (*x.shape[:axis], *x.shape[axis + 1 :]):
        if x.ndim != 1 or target.size != 1:
            raise UnsupportedArgumentsError
        target = F["reshape"](target, ())
    target = F["unsqueeze"](target, axis)
    counts = F["not_equal"](target, ignore_index)
    return axis, F["where"](counts, target, 0), counts


def _weights(weight: Tensor | None, safe: Tensor, counts: Tensor, dtype: DType) -> Any:
    """Return the weight of each element's loss."""
    out = cast(counts, dtype)
    if weight is None:
        return out
    return out * F["reshape"](F["take_along_axis"](weight, F["reshape"](safe, (-1,)), 0), safe.shape)


@aten("nll_loss_forward", "nll_loss2d_forward")
def nll_loss(x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int) -> Any:
    """Return the loss and the sum of the weights, which is 0 without a reduction."""
    axis, safe, counts = _classes(x, target, ignore_index)
    scale = _weights(weight, safe, counts, x.dtype)
    losses = F["where"](counts, -F["take_along_axis"](x, safe, axis) * scale, 0.0)
    if reduction == NONE:
        return F["squeeze"](losses, axis), zeros((), x.dtype, x.device)
    total, loss = _total(scale), F["sum"](losses)
    loss = cast(_total(losses) / total, x.dtype) if reduction == MEAN else loss
    return loss, cast(total, x.dtype)


def _total(x: Tensor) -> Any:
    """Return the sum in the dtype of its accumulator: float16 cannot hold a sum of 65,505 weights."""
    return F["sum"](cast(x, accumulator(x.dtype)))


@aten("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Any:
    axis, safe, counts = _classes(x, target, ignore_index)
    if reduction == MEAN:
        wide = accumulator(x.dtype)
        total = _total(_weights(weight, safe, counts, x.dtype)) if wide is not x.dtype else total_weight
        grad = cast(cast(grad, wide) / total, x.dtype)
    grad = F["unsqueeze"](grad, axis) if reduction == NONE else grad
    slope = F["where"](counts, -_weights(weight, safe, counts, x.dtype) * grad, 0.0)
    classes = F["arange"](0, x.shape[axis], 1, safe.dtype, device=x.device)
    chosen = F["equal"](F["reshape"](classes, (-1, *(1,) * (x.ndim - 1 - axis))), safe)
    return F["where"](chosen, slope, 0.0)
