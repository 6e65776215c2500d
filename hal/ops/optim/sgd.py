"""One step of stochastic gradient descent, optionally with momentum, for all parameters at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhal.hal.ops.declare import Output, Sample, Specs
from polyhal.hal.ops.optim.multi_tensor import SHAPES, checked_groups, draw, groups_of, multi_tensor
from polyhal.hal.ops.optim.step import as_tensor, where_stepping
from polyhal.hal.ops.optim.update_rule import SYMBOLS, with_decay
from polyhal.hal.ops.pointwise.logic import greater
from polyhal.hal.ops.pointwise.selection import where


def _group_count(xs: Sequence[Any], count: int, *, counted: bool) -> int:
    """3 with momentum buffers, else 2: parameters and gradients."""
    return 3 if len(xs) - 4 - counted == 3 * count else 2


def _sgd_step(*xs: Any, count: int = 0, nesterov: bool = False, counted: bool = False) -> Any:
    """One step of gradient descent over `count` parameters, as PyTorch's SGD.

    `xs` holds the parameters, gradients and, with momentum, the momentum buffers, then the numbers lr, momentum, dampening,
    weight_decay. If `counted`, the number of the step follows, from 1, as a tensor without axes: at 1 there is no
    dampening, and 0 leaves everything unchanged. Returns the new parameters and buffers.
    """
    kinds = _group_count(xs, count, counted=counted)
    groups = groups_of(xs, count, kinds)
    lr, momentum, dampening, decay, *step = xs[kinds * count :]
    if step and not float(step[0]):
        return tuple(x for i in range(0, kinds, 2) for x in groups[i])
    if step and float(step[0]) == 1:
        dampening = 0.0
    params, buffers = [], []
    for i, (p, g) in enumerate(zip(groups[0], groups[1], strict=True)):
        g = g + decay * p if decay else g
        if kinds == 3:
            b = momentum * groups[2][i] + (1 - dampening) * g
            g = g + momentum * b if nesterov else b
            buffers.append(b)
        params.append(p - lr * g)
    return (*params, *buffers)


def _decomposed(*xs: Any, count: int, nesterov: bool, counted: bool) -> Any:
    step = xs[-1] if counted else None
    kinds = _group_count(xs, count, counted=counted)
    groups = groups_of(xs, count, kinds)
    numbers = xs[kinds * count : len(xs) - counted]
    lr, momentum, dampening, decay = [as_tensor(x, groups[0][0]) for x in numbers]
    if step is not None:
        dampening = where(greater(step, 1), dampening, 0.0)
    params, buffers = [], []
    for i, (p, g) in enumerate(zip(groups[0], groups[1], strict=True)):
        g = with_decay(SYMBOLS, g, p, decay)
        if kinds == 3:
            b = groups[2][i] * momentum + g * (1.0 - dampening)
            g = g + b * momentum if nesterov else b
            buffers.append(b)
        params.append(p - g * lr)
    return where_stepping(step, (*params, *buffers), (*groups[0], *(groups[2] if kinds == 3 else ())))


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    kinds = _group_count(specs, params["count"], counted=params["counted"])
    groups = checked_groups(specs, params, kinds)
    return [(s.dtype, s.shape) for i in ((0, 2) if kinds == 3 else (0,)) for s in groups[i]]


def _samples(rng: np.random.Generator) -> list[Sample]:
    def sample(groups: int, *numbers: Any, nesterov: bool = False, **params: Any) -> Sample:
        xs = [x for _ in range(groups) for x in draw(rng)]
        bound = {"count": len(SHAPES), "nesterov": nesterov, **params}
        return Sample((*xs, *numbers), bound, differentiable=False)

    return [
        *(sample(3, 0.1, 0.9, 0.5, 0.01, np.array(t, np.float32), counted=True) for t in (0, 1, 2)),
        sample(2, 0.1, 0.0, 0.0, 0.01),
        sample(3, 0.1, 0.9, 0.0, 0.0, nesterov=True),
        sample(3, 0.1, 0.9, 0.5, 0.01),
    ]


sgd_step = multi_tensor(_sgd_step, name="sgd_step", infer=_infer, decompose=_decomposed, samples=_samples)
