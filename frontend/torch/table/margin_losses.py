"""Losses with gradients by autograd: margins of classes, and connectionist temporal classification (CTC)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.hal import dtypes
from polyhal.nn import functional
from polyhal.torch.registration import aten
from polyhal.torch.table.losses import MEAN, REDUCTIONS
from polyhal.torch.table.operands import F, cast, pulled_back, zeros

if TYPE_CHECKING:
    from polyhal.tensor import Tensor


@aten("multi_margin_loss")
def multi_margin_loss(
    x: Tensor, target: Tensor, p: float = 1, margin: float = 1, weight: Tensor | None = None, reduction: int = MEAN
) -> Any:
    loss = functional.multi_margin_loss(x, target, int(p), margin, weight, reduction=REDUCTIONS[reduction])
    return loss if x.ndim > 1 or reduction else F["reshape"](loss, target.shape)


@aten("multi_margin_loss_backward")
def multi_margin_loss_backward(
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    p: float,
    margin: float,
    weight: Tensor | None = None,
    reduction: int = MEAN,
) -> Any:
    return pulled_back(lambda x: multi_margin_loss(x, target, p, margin, weight, reduction), grad, x)


@aten("multilabel_margin_loss_forward")
def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> Any:
    """Return the loss, and a mask of target classes with elements 0 and 1."""
    loss = functional.multilabel_margin_loss(x, target, reduction=REDUCTIONS[reduction])
    count = x.shape[-1] if x.ndim else 1
    labels = F["reshape"](target, (-1, count))
    listed = F["equal"](F["cumsum"](cast(F["less"](labels, 0), dtypes.int32), 1), 0)
    classes = F["reshape"](F["arange"](0, count, 1, labels.dtype, device=x.device), (-1, 1))
    hot = F["logical_and"](F["equal"](F["unsqueeze"](labels, 1), classes), F["unsqueeze"](listed, 1))
    return loss, F["reshape"](cast(F["any"](hot, 2), x.dtype), target.shape)


@aten("multilabel_margin_loss_backward")
def multilabel_margin_loss_backward(grad: Tensor, x: Tensor, target: Tensor, reduction: int, is_target: Tensor) -> Any:
    chosen = REDUCTIONS[reduction]
    return pulled_back(lambda x: functional.multilabel_margin_loss(x, target, reduction=chosen), grad, x)


@aten("_ctc_loss", "_ctc_loss.Tensor")
def ctc_loss(
    log_probs: Tensor, targets: Tensor, steps: Tensor, labels: Tensor, blank: int = 0, zero_infinity: bool = False
) -> Any:
    """Return the losses (N,), and an empty tensor in place of PyTorch's saved sums, which the gradient recomputes."""
    losses = functional.ctc_loss(log_probs, targets, steps, labels, blank, "none")
    return cast(losses, log_probs.dtype), zeros((0,), log_probs.dtype, log_probs.device)


@aten("_ctc_loss_backward", "_ctc_loss_backward.Tensor")
def ctc_loss_backward(
    grad: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    steps: Tensor,
    labels: Tensor,
    losses: Tensor,
    sums: Tensor,
    blank: int,
    zero_infinity: bool = False,
) -> Any:
    """Return PyTorch's gradient, which includes the gradient of a preceding log-softmax: the probabilities of counted steps."""
    found = pulled_back(
        lambda x: functional.ctc_loss(x, targets, steps, labels, blank, "none", zero_infinity), grad, log_probs
    )
    # The gradients of a step are minus the probabilities of its classes, whose sum is 1, times the gradient of the loss.
    return found - F["exp"](log_probs) * F["sum"](found, -1, True)
