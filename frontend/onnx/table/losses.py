"""Losses of classification."""

from __future__ import annotations

from typing import Any

import polyhal as ph
from polyhal.onnx.registration import NodeFacts, Value, operator
from polyhal.tensor import Tensor


@operator("NegativeLogLikelihoodLoss")
def nll_loss(
    x: Tensor, target: Tensor, weight: Value = None, *, ignore_index: int | None = None, reduction: str = "mean"
) -> Any:
    used = None if ignore_index is None else target != ignore_index
    labels = target if used is None else ph.where(used, target, 0)
    taken = ph.squeeze(ph.gather(x, 1, ph.unsqueeze(labels, 1).to(ph.int64)), 1)
    share = None if weight is None else ph.reshape(ph.index_select(weight, 0, ph.reshape(labels, (-1,))), labels.shape)
    if used is not None:
        share = used.to(x.dtype) if share is None else ph.where(used, share, 0.0)
    losses = -taken if share is None else -taken * share
    if reduction == "none":
        return losses
    if reduction == "sum":
        return ph.sum(losses)
    return ph.mean(losses) if share is None else ph.sum(losses) / ph.sum(share)


@operator("SoftmaxCrossEntropyLoss")
def cross_entropy(
    scores: Tensor,
    labels: Tensor,
    weights: Value = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    node: NodeFacts,
) -> Any:
    log_probabilities = ph.log_softmax(scores, 1)
    loss = nll_loss(log_probabilities, labels, weights, ignore_index=ignore_index, reduction=reduction)
    return (loss, log_probabilities) if node.uses(1) else loss
