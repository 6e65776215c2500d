"""Update rules that divide by running or summed squares: Adagrad, Adadelta, RMSprop, Adamax, NAdam, RAdam, LAMB."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from polyhal.hal.ops.optim.update_rule import update_rule, with_decay
from polyhal.hal.ops.tensor_like import Numeric


def _adagrad(
    ops: SimpleNamespace,
    p: Numeric,
    g: Numeric,
    sum: Numeric,  # noqa: A002
    *,
    t: Numeric,
    lr: Numeric,
    lr_decay: Numeric,
    weight_decay: Numeric,
    eps: Numeric,
) -> Any:
    """One step of Adagrad. Source: Duchi, Hazan and Singer, JMLR 12 (2011)."""
    g = with_decay(ops, g, p, weight_decay)
    total = sum + g * g
    return p - g * (lr / (1.0 + (t - 1.0) * lr_decay)) / (ops.sqrt(total) + eps), total


adagrad_step = update_rule(
    _adagrad,
    name="adagrad_step",
    states=lambda: ("sum",),
    numbers=("lr", "lr_decay", "weight_decay", "eps"),
    positive=("sum",),
    draws={"lr_decay": 0.1},
)


def _adadelta(
    ops: SimpleNamespace,
    p: Numeric,
    g: Numeric,
    square_avg: Numeric,
    acc_delta: Numeric,
    *,
    t: Numeric,
    lr: Numeric,
    rho: Numeric,
    eps: Numeric,
    weight_decay: Numeric,
) -> Any:
    """One step of Adadelta. Source: Zeiler, arXiv:1212.5701."""
    g = with_decay(ops, g, p, weight_decay)
    square_avg = square_avg * rho + (g * g) * (1.0 - rho)
    delta = ops.sqrt(acc_delta + eps) / ops.sqrt(square_avg + eps) * g
    acc_delta = acc_delta * rho + (delta * delta) * (1.0 - rho)
    return p - delta * lr, square_avg, acc_delta


adadelta_step = update_rule(
    _adadelta,
    name="adadelta_step",
    states=lambda: ("square_avg", "acc_delta"),
    numbers=("lr", "rho", "eps", "weight_decay"),
    positive=("square_avg", "acc_delta"),
    draws={"rho": 0.9},
)


def _rmsprop(
    ops: SimpleNamespace,
    p: Numeric,
    g: Numeric,
    square_avg: Numeric,
    *others: Any,
    t: Numeric,
    lr: Numeric,
    alpha: Numeric,
    eps: Numeric,
    weight_decay: Numeric,
    momentum: Numeric,
    centered: bool = False,
    has_momentum: bool = False,
) -> Any:
    """One step of RMSprop. Source: Tieleman and Hinton, lecture 6.5 of "Neural networks for machine learning" (2012)."""
    g = with_decay(ops, g, p, weight_decay)
    square_avg = square_avg * alpha + (g * g) * (1.0 - alpha)
    rest = list(others)
    buffer = rest.pop(0) if has_momentum else None
    variance = square_avg
    if centered:
        rest[0] = rest[0] * alpha + g * (1.0 - alpha)
        variance = square_avg - rest[0] * rest[0]
    step = g / (ops.sqrt(variance) + eps)
    if buffer is None:
        return (p - step * lr, square_avg, *rest)
    buffer = buffer * momentum + step
    return (p - buffer * lr, square_avg, buffer, *rest)


def _rmsprop_states(centered: bool, has_momentum: bool) -> tuple[str, ...]:
    return ("square_avg", *(("momentum_buffer",) * has_momentum), *(("grad_avg",) * centered))


rmsprop_step = update_rule(
    _rmsprop,
    name="rmsprop_step",
    states=_rmsprop_states,
    numbers=("lr", "alpha", "eps", "weight_decay", "momentum"),
    # A centred variance is a difference: it stays away from 0 where the mean is small compared to the squares.
    positive=("square_avg",),
    variants=({}, {"has_momentum": True}),
    draws={"alpha": 0.9, "momentum": 0.9},
)


def _adamax(
    ops: SimpleNamespace,
    p: Numeric,
    g: Numeric,
    exp_avg: Numeric,
    exp_inf: Numeric,
    *,
    t: Numeric,
    lr: Numeric,
    beta1: Numeric,
    beta2: Numeric,
    eps: Numeric,
    weight_decay: Numeric,
) -> Any:
    """One step of Adamax. Source: Kingma and Ba, arXiv:1412.6980, section 7."""
    g = with_decay(ops, g, p, weight_decay)
    exp_avg = exp_avg * beta1 + g * (1.0 - beta1)
    exp_inf = ops.maximum(exp_inf * beta2, ops.abs(g) + eps)
    return p - exp_avg / exp_inf * (lr / ops.correction(beta1, t)), exp_avg, exp_inf


adamax_step = update_rule(
    _adamax,
    name="adamax_step",
    states=lambda: ("exp_avg", "exp_inf"),
    numbers=("lr", "beta1", "beta2", "eps", "weight_decay"),
    positive=("exp_inf",),
)


def _nadam(
    ops: SimpleNamespace,
    p: Numeric,
    g: Numeric,
    exp_avg: Numeric,
    exp_avg_sq: Numeric,
    *,
    t: Numeric,
    lr: Numeric,
    beta1: Numeric,
    beta2: Numeric,
    eps: Numeric,
    weight_decay: Numeric,
    gradient_weight: Numeric,
    momentum_weight: Numeric,
    decoupled: bool = False,
) -> Any:
    """One step of NAdam. Source: Dozat, "Incorporating Nesterov momentum into Adam", ICLR workshop 2016.

    The weights contain the schedule of the momentum: (1 - mu_t) / (1 - prod mu) and mu_{t+1} / (1 - prod mu).
    """
    p, g = (p * (1.0 - lr * weight_decay), g) if decoupled else (p, with_decay(ops, g, p, weight_decay))
    exp_avg = exp_avg * beta1 + g * (1.0 - beta1)
    exp_avg_sq = exp_avg_sq * beta2 + (g * g) * (1.0 - beta2)
    scale = ops.sqrt(exp_avg_sq / ops.correction(beta2, t)) + eps
    return p - (g * gradient_weight + exp_avg * momentum_weight) * lr / scale, exp_avg, exp_avg_sq


nadam_step = update_rule(
    _nadam,
    name="nadam_step",
    states=lambda decoupled: ("exp_avg", "exp_avg_sq"),
    numbers=("lr", "beta1", "beta2", "eps", "weight_decay", "gradient_weight", "momentum_weight"),
    positive=("exp_avg_sq",),
    variants=({}, {"decoupled": True}),
    draws={"gradient_weight": 0.6, "momentum_weight": 0.7},
)


def _radam(
    ops: SimpleNamespace,
    p: Numeric,
    g: Numeric,
    exp_avg: Numeric,
    exp_avg_sq: Numeric,
    *,
    t: Numeric,
    lr: Numeric,
    beta1: Numeric,
    beta2: Numeric,
    eps: Numeric,
    weight_decay: Numeric,
    decoupled: bool = False,
) -> Any:
    """One step of RAdam. Source: Liu et al., arXiv:1908.03265."""
    p, g = (p * (1.0 - lr * weight_decay), g) if decoupled else (p, with_decay(ops, g, p, weight_decay))
    exp_avg = exp_avg * beta1 + g * (1.0 - beta1)
    exp_avg_sq = exp_avg_sq * beta2 + (g * g) * (1.0 - beta2)
    correction1, correction2 = ops.correction(beta1, t), ops.correction(beta2, t)
    longest = 2.0 / (1.0 - beta2) - 1.0
    length = longest - 2.0 * t * (1.0 - correction2) / correction2
    rectifiable = length > 5.0
    numerator = (length - 4.0) * (length - 2.0) * longest
    # Only a longest average above 5 is rectifiable; beyond that the quotient is not used, and must not be one by 0.
    bounded = ops.maximum(longest, 5.0)
    rectified = numerator / ((bounded - 4.0) * (bounded - 2.0) * ops.maximum(length, 1.0))
    adaptive = ops.sqrt(ops.maximum(rectified, 0.0)) * ops.sqrt(correction2) / (ops.sqrt(exp_avg_sq) + eps)
    return p - exp_avg * (lr / correction1) * ops.where(rectifiable, adaptive, 1.0), exp_avg, exp_avg_sq


radam_step = update_rule(
    _radam,
    name="radam_step",
    states=lambda decoupled: ("exp_avg", "exp_avg_sq"),
    numbers=("lr", "beta1", "beta2", "eps", "weight_decay"),
    positive=("exp_avg_sq",),
    variants=({}, {"decoupled": True}),
)


def _lamb(
    ops: SimpleNamespace,
    p: Numeric,
    g: Numeric,
    exp_avg: Numeric,
    exp_avg_sq: Numeric,
    update: Numeric,
    *,
    t: Numeric,
    beta1: Numeric,
    beta2: Numeric,
    eps: Numeric,
    weight_decay: Numeric,
) -> Any:
    """The update of LAMB before it is scaled, in place of an earlier one. Source: arXiv:1904.00962."""
    exp_avg = exp_avg * beta1 + g * (1.0 - beta1)
    exp_avg_sq = exp_avg_sq * beta2 + g * g * (1.0 - beta2)
    scale = ops.sqrt(exp_avg_sq) * (1.0 / ops.sqrt(ops.correction(beta2, t))) + eps
    update = exp_avg * (1.0 / ops.correction(beta1, t)) / scale
    return p, exp_avg, exp_avg_sq, with_decay(ops, update, p, weight_decay)


lamb_update = update_rule(
    _lamb,
    name="lamb_update",
    states=lambda: ("exp_avg", "exp_avg_sq", "update"),
    numbers=("beta1", "beta2", "eps", "weight_decay"),
    positive=("exp_avg_sq",),
)
