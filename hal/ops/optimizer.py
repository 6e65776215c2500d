"""Optimizer steps and gradient scaling over many tensors at once, in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.ops.exponential import sqrt
from polyhal.hal.ops.logic import logical_not, logical_or
from polyhal.hal.ops.opdef import OPS, OpDef, Output, Sample, Specs, Tolerance, tensors
from polyhal.hal.ops.reduction import any_, sum_
from polyhal.hal.ops.rounding import isfinite

_EXACT_SHAPES: list[tuple[int, ...]] = [(7,), (3, 5), (), (33, 2)]


def _groups(xs: Sequence[Any], count: int, kinds: int) -> list[Sequence[Any]]:
    return [xs[i * count : (i + 1) * count] for i in range(kinds)]


def _check(specs: Specs, count: int, kinds: int) -> list[Sequence[Spec]]:
    found = tensors(specs)
    if len(found) != count * kinds:
        raise ValueError(f"{len(found)} tensors; expected {kinds} groups of {count}")
    groups = _groups(found, count, kinds)
    for group in groups[1:]:
        for p, s in zip(groups[0], group, strict=True):
            if p.shape != s.shape:
                raise ValueError(f"a parameter of shape {p.shape} has state or gradient of shape {s.shape}")
    return groups


def _many(
    name: str,
    doc: str,
    reference: Callable[..., Any],
    decompose: Callable[..., Any],
    infer: Callable[[Specs, dict[str, Any]], list[Output]],
    params: dict[str, Any],
    samples: Callable[[np.random.Generator], list[Sample]],
    *,
    mutates: bool = True,
    several: bool = True,
    tolerance: Tolerance | None = None,
) -> Callable[..., Any]:
    return OPS.declare(
        OpDef(
            name=name,
            family="optimizer",
            doc=doc,
            inputs=("xs",),
            optional=frozenset(),
            variadic=True,
            params=params,
            outputs=("out",),
            infer=infer,
            public=False,
            reference=reference,
            decompose=decompose,
            samples=samples,
            dtypes=(dtypes.float32, dtypes.float64),
            tolerance=tolerance or Tolerance(16.0, floor=1.0),
            mutates=(0,) if mutates else (),
            several=several,
        )
    )


# --- Adam -----------------------------------------------------------------------------------------------------------


def _adam_step(*xs: Any, count: int, decoupled: bool = True) -> Any:
    groups = _groups(xs, count, 4)
    lr, beta1, beta2, eps, decay, correction1, correction2 = xs[4 * count :]
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


def _adam_decomposed(*xs: Any, count: int, decoupled: bool) -> Any:
    groups = _groups(xs, count, 4)
    lr, beta1, beta2, eps, decay, correction1, correction2 = [_number(x, groups[0][0]) for x in xs[4 * count :]]
    params, firsts, seconds = [], [], []
    for p, g, m, v in zip(*groups, strict=True):
        p32, g32 = (
            p.cast(dtype=m.dtype) if p.dtype is not m.dtype else p,
            g.cast(dtype=m.dtype) if g.dtype is not m.dtype else g,
        )
        if decoupled:
            p32 = p32 - p32 * (lr * decay)
        else:
            g32 = g32 + p32 * decay
        m = m * beta1 + g32 * (1.0 - beta1)
        v = v * beta2 + (g32 * g32) * (1.0 - beta2)
        params.append(p32 - (m * (lr / correction1)) / (sqrt(v) / sqrt(correction2) + eps))
        firsts.append(m)
        seconds.append(v)
    return (*params, *firsts, *seconds)


def _number(x: Any, beside: Any) -> Any:
    """A number that varies from call to call, as a tensor of one element that arithmetic can use."""
    from polyhal.hal.ops.random import spread_number

    return spread_number(x, (), dtypes.float64 if beside.dtype is dtypes.float64 else dtypes.float32)


def _infer_adam(specs: Specs, params: dict[str, Any]) -> list[Output]:
    groups = _check(specs, params["count"], 4)
    return [(s.dtype, s.shape) for i in (0, 2, 3) for s in groups[i]]


def _adam_samples(rng: np.random.Generator) -> list[Sample]:
    def draw() -> list[Any]:
        return [rng.uniform(-1, 1, s) for s in _EXACT_SHAPES]

    out = []
    for decoupled, t in ((True, 1), (False, 10)):
        seconds = [rng.uniform(0.01, 1, s) for s in _EXACT_SHAPES]
        numbers = (1e-2, 0.9, 0.999, 1e-8, 0.1, 1 - 0.9**t, 1 - 0.999**t)
        inputs = (*draw(), *draw(), *draw(), *seconds, *numbers)
        out.append(Sample(inputs, {"count": len(_EXACT_SHAPES), "decoupled": decoupled}, differentiable=False))
    return out


adam_step = _many(
    "adam_step",
    "One step of Adam, or AdamW with `decoupled` weight decay, over `count` parameters.\n\n"
    "Source: arXiv:1412.6980, arXiv:1711.05101. "
    "`xs` holds the parameters, gradients, first and second moments, then the numbers lr, beta1, beta2, eps, weight_decay,\n"
    "1 - beta1^t, 1 - beta2^t. Returns the new parameters, first and second moments.",
    _adam_step,
    _adam_decomposed,
    _infer_adam,
    {"count": 0, "decoupled": True},
    _adam_samples,
)

# --- stochastic gradient descent ------------------------------------------------------------------------------------


def _sgd_step(*xs: Any, count: int, nesterov: bool = False) -> Any:
    kinds = 3 if len(xs) - 4 == 3 * count else 2
    groups = _groups(xs, count, kinds)
    lr, momentum, dampening, decay = xs[kinds * count :]
    params, buffers = [], []
    for i, (p, g) in enumerate(zip(groups[0], groups[1], strict=True)):
        g = g + decay * p
        if kinds == 3:
            b = momentum * groups[2][i] + (1 - dampening) * g
            g = g + momentum * b if nesterov else b
            buffers.append(b)
        params.append(p - lr * g)
    return (*params, *buffers)


def _sgd_decomposed(*xs: Any, count: int, nesterov: bool) -> Any:
    kinds = 3 if len(xs) - 4 == 3 * count else 2
    groups = _groups(xs, count, kinds)
    lr, momentum, dampening, decay = [_number(x, groups[0][0]) for x in xs[kinds * count :]]
    params, buffers = [], []
    for i, (p, g) in enumerate(zip(groups[0], groups[1], strict=True)):
        g = g + p * decay
        if kinds == 3:
            b = groups[2][i] * momentum + g * (1.0 - dampening)
            g = g + b * momentum if nesterov else b
            buffers.append(b)
        params.append(p - g * lr)
    return (*params, *buffers)


def _infer_sgd(specs: Specs, params: dict[str, Any]) -> list[Output]:
    kinds = 3 if len(specs) - 4 == 3 * params["count"] else 2
    groups = _check(specs, params["count"], kinds)
    return [(s.dtype, s.shape) for i in ((0, 2) if kinds == 3 else (0,)) for s in groups[i]]


def _sgd_samples(rng: np.random.Generator) -> list[Sample]:
    def draw() -> list[Any]:
        return [rng.uniform(-1, 1, s) for s in _EXACT_SHAPES]

    count = len(_EXACT_SHAPES)
    return [
        Sample((*draw(), *draw(), 0.1, 0.0, 0.0, 0.01), {"count": count, "nesterov": False}, differentiable=False),
        Sample(
            (*draw(), *draw(), *draw(), 0.1, 0.9, 0.0, 0.0), {"count": count, "nesterov": True}, differentiable=False
        ),
        Sample(
            (*draw(), *draw(), *draw(), 0.1, 0.9, 0.5, 0.01), {"count": count, "nesterov": False}, differentiable=False
        ),
    ]


sgd_step = _many(
    "sgd_step",
    "One step of gradient descent over `count` parameters, as PyTorch's SGD.\n\n"
    "`xs` holds the parameters, gradients and, with momentum, the momentum buffers, then the numbers lr, momentum, dampening,\n"
    "weight_decay. Returns the new parameters and buffers.",
    _sgd_step,
    _sgd_decomposed,
    _infer_sgd,
    {"count": 0, "nesterov": False},
    _sgd_samples,
)

# --- gradients together ---------------------------------------------------------------------------------------------


def _sum_of_squares(*xs: Any) -> Any:
    return sum(np.sum(np.square(np.asarray(x, np.float64))) for x in xs)


def _sum_of_squares_decomposed(*xs: Any) -> Any:
    total = None
    for x in xs:
        wide = x if x.dtype.itemsize >= 4 else x.cast(dtype=dtypes.float32)
        part = sum_(wide * wide)
        part = part if part.dtype is dtypes.float32 else part.cast(dtype=dtypes.float32)
        total = part if total is None else total + part
    return total


sum_of_squares = _many(
    "sum_of_squares",
    "The sum of the squares of all elements of all tensors, in float32.",
    _sum_of_squares,
    _sum_of_squares_decomposed,
    lambda specs, params: [(dtypes.float32, ())],
    {},
    lambda rng: [Sample(tuple(rng.uniform(-1, 1, s) for s in _EXACT_SHAPES), differentiable=False)],
    mutates=False,
    several=False,
    tolerance=Tolerance(4.0, terms=lambda specs, params: sum(s.size for s in tensors(specs))),
)


def _infer_scale(specs: Specs, params: dict[str, Any]) -> list[Output]:
    found = tensors(specs)
    if len(found) != len(specs) or found[-1].shape != ():
        raise ValueError("expected tensors, then a tensor without axes as the factor")
    return [(s.dtype, s.shape) for s in found[:-1]]


scale_all = _many(
    "scale_all",
    "Every tensor multiplied by the last one, which has no axes.",
    lambda *xs: tuple(x * xs[-1] for x in xs[:-1]),
    lambda *xs: tuple(x * xs[-1] for x in xs[:-1]),
    _infer_scale,
    {},
    lambda rng: [Sample((*[rng.uniform(-1, 1, s) for s in _EXACT_SHAPES], np.array(0.5)), differentiable=False)],
)


def _unscale_all(*xs: Any) -> Any:
    scaled = tuple(x * xs[-1] for x in xs[:-1])
    return (*scaled, np.float32(any(not np.isfinite(x).all() for x in xs[:-1])))


def _unscale_all_decomposed(*xs: Any) -> Any:
    bad = None
    for x in xs[:-1]:
        part = any_(logical_not(isfinite(x)))
        bad = part if bad is None else logical_or(bad, part)
    return (*[x * xs[-1] for x in xs[:-1]], bad.cast(dtype=dtypes.float32))  # type: ignore[union-attr]


def _unscale_samples(rng: np.random.Generator) -> list[Sample]:
    good = [rng.uniform(-1, 1, s) for s in _EXACT_SHAPES]
    out = [Sample((*good, np.array(0.5)), differentiable=False)]
    for bad in (np.inf, -np.inf, np.nan):
        last = good[-1].copy()
        last[-1, -1] = bad
        out.append(Sample((*good[:-1], last, np.array(0.5)), special=True))
    return out


unscale_all = _many(
    "unscale_all",
    "Every tensor multiplied by the last one, which has no axes; and 1 if any of their elements was infinite or NaN, else 0.",
    _unscale_all,
    _unscale_all_decomposed,
    lambda specs, params: [*_infer_scale(specs, params), (dtypes.float32, ())],
    {},
    _unscale_samples,
    mutates=False,
)
