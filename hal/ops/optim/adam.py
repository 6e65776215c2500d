"""One step of Adam or AdamW for all parameters at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhal.hal.ops.declare import Output, Sample, Specs
from polyhal.hal.ops.optim.multi_tensor import SHAPES, checked_groups, draw, groups_of, multi_tensor
from polyhal.hal.ops.optim.step import as_tensor, where_stepping
from polyhal.hal.ops.optim.update_rule import SYMBOLS, with_decay
from polyhal.hal.ops.pointwise.exponential import expm1, log, sqrt


def _adam_step(*xs: Any, count: int = 0, decoupled: bool = True, counted: bool = False) -> Any:
    """One step of Adam, or AdamW with `decoupled` weight decay, over `count` parameters.

    Source: arXiv:1412.6980, arXiv:1711.05101. `xs` holds the parameters, gradients, first and second moments, then the
    numbers lr, beta1, beta2, eps, weight_decay, 1 - beta1^t, 1 - beta2^t. If `counted`, the last two are replaced by t
    itself as a tensor without axes, where 0 leaves everything unchanged, or by one t for each parameter. Returns the new
    parameters, first and second moments.
    """
    groups = groups_of(xs, count, 4)
    lr, beta1, beta2, eps, decay, *rest = xs[4 * count :]
    steps = _for_each(rest, count) if counted else [None] * count
    rows = []
    for p, g, m, v, step in zip(*groups, steps, strict=True):
        if step is not None and not float(step):
            rows.append((p, m, v))
            continue
        correction1, correction2 = rest if step is None else (1 - beta1 ** float(step), 1 - beta2 ** float(step))
        if decoupled:
            p = p * (1 - lr * decay)
        elif decay:
            g = g + decay * p
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        rows.append((p - lr * (m / correction1) / (np.sqrt(v / correction2) + eps), m, v))
    return tuple(x for column in zip(*rows, strict=True) for x in column)


def _for_each(steps: Sequence[Any], count: int) -> Sequence[Any]:
    """The number of the step of each parameter."""
    return steps if len(steps) == count else [*steps] * count


def _decomposed(*xs: Any, count: int, decoupled: bool, counted: bool) -> Any:
    groups = groups_of(xs, count, 4)
    numbers = [as_tensor(x, groups[0][0]) for x in (xs[4 * count :][:5] if counted else xs[4 * count :])]
    lr, beta1, beta2, eps, decay, *rest = numbers
    steps = _for_each(xs[4 * count + 5 :], count) if counted else [None] * count
    if counted:
        distinct = {id(step): [-expm1(_cast(step, lr) * log(beta)) for beta in (beta1, beta2)] for step in steps}
    rows = []
    for param, grad, m, v, step in zip(*groups, steps, strict=True):
        correction1, correction2 = rest if step is None else distinct[id(step)]
        p, g = _cast(param, m), _cast(grad, m)
        if decoupled:
            p = p * (1.0 - lr * decay)
        else:
            g = with_decay(SYMBOLS, g, p, decay)
        first = m * beta1 + g * (1.0 - beta1)
        second = v * beta2 + (g * g) * (1.0 - beta2)
        p = p - (first * (lr / correction1)) / (sqrt(second) / sqrt(correction2) + eps)
        rows.append(where_stepping(step, (p, first, second), (param, m, v)))
    return tuple(x for column in zip(*rows, strict=True) for x in column)


def _cast(x: Any, like: Any) -> Any:
    return x if x.dtype is like.dtype else x.cast(dtype=like.dtype)


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    count, counted = params["count"], params["counted"]
    steps = len(specs) - 4 * count - 5 if counted else 0
    if counted and steps not in (1, count):
        raise ValueError(f"{steps} numbers of steps; expected 1 or {count}, one for each parameter")
    groups = checked_groups(specs, params, 4, steps=steps)
    return [(s.dtype, s.shape) for i in (0, 2, 3) for s in groups[i]]


def _samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    for decoupled, t in ((True, 1), (False, 10)):
        seconds = [rng.uniform(0.01, 1, s) for s in SHAPES]
        numbers = (1e-2, 0.9, 0.999, 1e-8, 0.1, 1 - 0.9**t, 1 - 0.999**t)
        params = {"count": len(SHAPES), "decoupled": decoupled, "counted": False}
        xs = (*draw(rng), *draw(rng), *draw(rng), *seconds)
        out.append(Sample((*xs, *numbers), params, differentiable=False))
        for steps in ((t,), (0,), (t, 3, 0, 7)):
            counted = (*xs, *numbers[:5], *(np.array(step, np.float32) for step in steps))
            out.append(Sample(counted, {**params, "counted": True}, differentiable=False))
    return out


adam_step = multi_tensor(_adam_step, name="adam_step", infer=_infer, decompose=_decomposed, samples=_samples)
