"""Update rules that look at signs, and averaged descent: Rprop, Lion, ASGD."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from polyhal.hal.ops.optim.update_rule import update_rule, with_decay
from polyhal.hal.ops.tensor_like import Numeric


def _rprop(
    ops: SimpleNamespace,
    p: Numeric,
    g: Numeric,
    prev: Numeric,
    step_size: Numeric,
    *,
    t: Numeric,
    eta_minus: Numeric,
    eta_plus: Numeric,
    least: Numeric,
    most: Numeric,
) -> Any:
    """One step of Rprop. Source: Riedmiller and Braun, IEEE ICNN 1993."""
    agreement = g * prev
    factor = ops.where(agreement > 0.0, eta_plus, ops.where(agreement < 0.0, eta_minus, 1.0))
    step_size = ops.minimum(ops.maximum(step_size * factor, least), most)
    g = ops.where(agreement < 0.0, 0.0, g)
    return p - ops.sign(g) * step_size, g, step_size


rprop_step = update_rule(
    _rprop,
    name="rprop_step",
    states=lambda: ("prev", "step_size"),
    numbers=("eta_minus", "eta_plus", "least", "most"),
    positive=("step_size",),
    draws={"eta_minus": 0.5, "eta_plus": 1.2, "least": 0.02, "most": 0.9},
)


def _lion(
    ops: SimpleNamespace,
    p: Numeric,
    g: Numeric,
    exp_avg: Numeric,
    *,
    t: Numeric,
    lr: Numeric,
    beta1: Numeric,
    beta2: Numeric,
    weight_decay: Numeric,
) -> Any:
    """One step of Lion. Source: Chen et al., arXiv:2302.06675."""
    direction = ops.sign(exp_avg * beta1 + g * (1.0 - beta1))
    return p * (1.0 - lr * weight_decay) - direction * lr, exp_avg * beta2 + g * (1.0 - beta2)


lion_step = update_rule(
    _lion, name="lion_step", states=lambda: ("exp_avg",), numbers=("lr", "beta1", "beta2", "weight_decay")
)


def _asgd(
    ops: SimpleNamespace,
    p: Numeric,
    g: Numeric,
    ax: Numeric,
    *,
    t: Numeric,
    lr: Numeric,
    lambd: Numeric,
    alpha: Numeric,
    t0: Numeric,
    weight_decay: Numeric,
) -> Any:
    """One step of averaged SGD. Source: Polyak and Juditsky, SIAM J. Control Optim. 30 (1992)."""
    g = with_decay(ops, g, p, weight_decay)
    eta = lr / ops.pow(1.0 + lambd * lr * (t - 1.0), alpha)
    p = p * (1.0 - lambd * eta) - g * eta
    count = ops.maximum(t - 1.0 - t0, 1.0)
    return p, ops.where(count > 1.0, ax + (p - ax) / count, p)


asgd_step = update_rule(
    _asgd,
    name="asgd_step",
    states=lambda: ("ax",),
    numbers=("lr", "lambd", "alpha", "t0", "weight_decay"),
    draws={"lambd": 1e-2, "alpha": 0.75, "t0": 2.0},
)
