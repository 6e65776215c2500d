"""One step of Adam or AdamW for all parameters at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal.ops.declare import Output, Sample, Specs
from polyhal.hal.ops.optim.multi_tensor import SHAPES, checked_groups, draw, groups_of, multi_tensor
from polyhal.hal.ops.optim.step import as_tensor, where_stepping
from polyhal.hal.ops.pointwise.exponential import expm1, log, sqrt


def _adam_step(*xs: Any, count: int = 0, decoupled: bool = True, counted: bool = False) -> Any:
    """One step of Adam, or AdamW with `decoupled` weight decay, over `count` parameters.

    Source: arXiv:1412.6980, arXiv:1711.05101. `xs` holds the parameters, gradients, first and second moments, then the
    numbers lr, beta1, beta2, eps, weight_decay, 1 - beta1^t, 1 - beta2^t. If `counted`, the last two are replaced by t
    itself as a tensor without axes, where 0 leaves everything unchanged. Returns the new parameters, first and second
    moments.
    """
    groups = groups_of(xs, count, 4)
    lr, beta1, beta2, eps, decay, *corrections = xs[4 * count :]
    if counted:
        step = float(corrections[0])
        if not step:
            return tuple(x for i in (0, 2, 3) for x in groups[i])
        corrections = [1 - beta1**step, 1 - beta2**step]
    correction1, correction2 = corrections
    params, firsts, seconds = [], [], []
    for p, g, m, v in zip(*groups, strict=True):
        if decoupled:
            p = p * (1 - lr * decay)
        else:
            g = g + decay * p
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        params.append(p - lr * (m / correction1) / (np.sqrt(v / correction2) + eps))
        firsts.append(m)
        seconds.append(v)
    return (*params, *firsts, *seconds)


def _decomposed(*xs: Any, count: int, decoupled: bool, counted: bool) -> Any:
    groups = groups_of(xs, count, 4)
    step = xs[-1] if counted else None
    numbers = xs[4 * count : len(xs) - counted]
    lr, beta1, beta2, eps, decay, *corrections = [as_tensor(x, groups[0][0]) for x in numbers]
    if step is not None:
        wide = _cast(step, lr)
        corrections = [-expm1(wide * log(beta)) for beta in (beta1, beta2)]
    correction1, correction2 = corrections
    params, firsts, seconds = [], [], []
    for param, grad, m, v in zip(*groups, strict=True):
        p, g = _cast(param, m), _cast(grad, m)
        if decoupled:
            p = p - p * (lr * decay)
        else:
            g = g + p * decay
        m = m * beta1 + g * (1.0 - beta1)
        v = v * beta2 + (g * g) * (1.0 - beta2)
        params.append(p - (m * (lr / correction1)) / (sqrt(v) / sqrt(correction2) + eps))
        firsts.append(m)
        seconds.append(v)
    return where_stepping(step, (*params, *firsts, *seconds), (*groups[0], *groups[2], *groups[3]))


def _cast(x: Any, like: Any) -> Any:
    return x if x.dtype is like.dtype else x.cast(dtype=like.dtype)


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    groups = checked_groups(specs, params, 4)
    return [(s.dtype, s.shape) for i in (0, 2, 3) for s in groups[i]]


def _samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    for decoupled, t in ((True, 1), (False, 10)):
        seconds = [rng.uniform(0.01, 1, s) for s in SHAPES]
        numbers = (1e-2, 0.9, 0.999, 1e-8, 0.1, 1 - 0.9**t, 1 - 0.999**t)
        params = {"count": len(SHAPES), "decoupled": decoupled, "counted": False}
        xs = (*draw(rng), *draw(rng), *draw(rng), *seconds)
        out.append(Sample((*xs, *numbers), params, differentiable=False))
        for step in (t, 0):
            counted = (*xs, *numbers[:5], np.array(step, np.float32))
            out.append(Sample(counted, {**params, "counted": True}, differentiable=False))
    return out


adam_step = multi_tensor(_adam_step, name="adam_step", infer=_infer, decompose=_decomposed, samples=_samples)
