"""The update rule of stochastic gradient descent, optionally with momentum."""

from __future__ import annotations

from typing import Any

from polyhal.hal.ops.optim.update_rule import update_rule, with_decay
from polyhal.hal.ops.tensor_like import Numeric


def _sgd(
    ops: Any,
    p: Numeric,
    g: Any,
    *buffers: Any,
    t: Any,
    lr: Numeric,
    momentum: Any,
    dampening: Any,
    weight_decay: Numeric,
    has_momentum: bool = False,
    nesterov: bool = False,
) -> Any:
    """One step of gradient descent, as PyTorch's SGD: the first gradient is not dampened."""
    g = with_decay(ops, g, p, weight_decay)
    if not has_momentum:
        return (p - g * lr,)
    buffer = buffers[0] * momentum + g * ops.where(t > 1.0, 1.0 - dampening, 1.0)
    return p - (g + buffer * momentum if nesterov else buffer) * lr, buffer


sgd_step = update_rule(
    _sgd,
    name="sgd_step",
    states=lambda has_momentum, nesterov: ("momentum_buffer",) * has_momentum,
    numbers=("lr", "momentum", "dampening", "weight_decay"),
    variants=({"has_momentum": True}, {}, {"has_momentum": True, "nesterov": True}),
    draws={"momentum": 0.9, "dampening": 0.5},
)
