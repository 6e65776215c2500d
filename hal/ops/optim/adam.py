"""The update rule of Adam and AdamW."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from polyhal.hal.ops.optim.update_rule import update_rule, with_decay
from polyhal.hal.ops.tensor_like import Numeric


def _adam(
    ops: SimpleNamespace,
    p: Numeric,
    g: Numeric,
    exp_avg: Numeric,
    exp_avg_sq: Numeric,
    *others: Any,
    t: Numeric,
    lr: Numeric,
    beta1: Numeric,
    beta2: Numeric,
    eps: Numeric,
    weight_decay: Numeric,
    decoupled: bool = False,
    amsgrad: bool = False,
) -> Any:
    """One step of Adam, AdamW with `decoupled` weight decay, or AMSGrad, which divides by the largest squares so far.

    Sources: arXiv:1412.6980, arXiv:1711.05101; Reddi, Kale and Kumar, ICLR 2018.
    """
    p, g = (p * (1.0 - lr * weight_decay), g) if decoupled else (p, with_decay(ops, g, p, weight_decay))
    exp_avg = exp_avg * beta1 + g * (1.0 - beta1)
    exp_avg_sq = exp_avg_sq * beta2 + g * g * (1.0 - beta2)
    largest = tuple(ops.maximum(x, exp_avg_sq) for x in others)
    root = ops.sqrt(largest[0] if amsgrad else exp_avg_sq)
    scale = root * (1.0 / ops.sqrt(ops.correction(beta2, t))) + eps
    return p - exp_avg * (lr / ops.correction(beta1, t)) / scale, exp_avg, exp_avg_sq, *largest


adam_step = update_rule(
    _adam,
    name="adam_step",
    states=lambda decoupled, amsgrad: ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) * amsgrad)),
    numbers=("lr", "beta1", "beta2", "eps", "weight_decay"),
    positive=("exp_avg_sq", "max_exp_avg_sq"),
    variants=({}, {"decoupled": True}, {"amsgrad": True}, {"decoupled": True, "amsgrad": True}),
)
