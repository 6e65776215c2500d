"""Optimizer steps and gradient scaling over many tensors at once, in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OPS, OpDef, Output, Sample, Specs, Tolerance, tensors
from polyhal.hal.ops.pointwise.exponential import expm1, log, sqrt
from polyhal.hal.ops.pointwise.logic import greater, logical_not, logical_or
from polyhal.hal.ops.pointwise.rounding import isfinite
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.reductions.reduce import any_, sum_
from polyhal.hal.ops.traits import Autocast, Trait

_EXACT_SHAPES: list[tuple[int, ...]] = [(7,), (3, 5), (), (33, 2)]


def _groups(xs: Sequence[Any], count: int, kinds: int) -> list[Sequence[Any]]:
    return [xs[i * count : (i + 1) * count] for i in range(kinds)]


def _check_turn(specs: Specs) -> None:
    """The number of the step, which comes last, must be a tensor without axes."""
    last = specs[-1]
    if not isinstance(last, Spec) or last.shape != () or not last.dtype.is_floating_point:
        raise ValueError(f"the number of the step is {last}; expected a floating-point tensor without axes")


def _taken(turn: Any, new: Sequence[Any], old: Sequence[Any]) -> Sequence[Any]:
    """`new` if there is a step to take, else `old`, which is the parameters and states."""
    if turn is None:
        return new
    taken = greater(turn, 0)
    return tuple(where(taken, n, o) for n, o in zip(new, old, strict=True))


def _check(specs: Specs, params: dict[str, Any], kinds: int) -> list[Sequence[Spec]]:
    count = params["count"]
    if params["counted"]:
        _check_turn(specs)
    found = tensors(specs[:-1] if params["counted"] else specs)
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
    autocast: Autocast = Autocast.INHERIT,
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
            traits=Trait.INPLACE,
            autocast=autocast,
        )
    )


# --- Adam -----------------------------------------------------------------------------------------------------------


def _adam_step(*xs: Any, count: int, decoupled: bool = True, counted: bool = False) -> Any:
    groups = _groups(xs, count, 4)
    lr, beta1, beta2, eps, decay, *corrections = xs[4 * count :]
    if counted:
        turn = float(corrections[0])
        if not turn:
            return tuple(x for i in (0, 2, 3) for x in groups[i])
        corrections = [1 - beta1**turn, 1 - beta2**turn]
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


def _adam_decomposed(*xs: Any, count: int, decoupled: bool, counted: bool) -> Any:
    groups = _groups(xs, count, 4)
    turn = xs[-1] if counted else None
    numbers = xs[4 * count : len(xs) - counted]
    lr, beta1, beta2, eps, decay, *corrections = [_number(x, groups[0][0]) for x in numbers]
    if turn is not None:
        wide = turn if turn.dtype is lr.dtype else turn.cast(dtype=lr.dtype)
        corrections = [-expm1(wide * log(beta)) for beta in (beta1, beta2)]
    correction1, correction2 = corrections
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
    return _taken(turn, (*params, *firsts, *seconds), (*groups[0], *groups[2], *groups[3]))


def _number(x: Any, beside: Any) -> Any:
    """A number that varies from call to call, as a tensor of one element that arithmetic can use."""
    from polyhal.hal.ops.random.philox import spread_number

    return spread_number(x, (), dtypes.float64 if beside.dtype is dtypes.float64 else dtypes.float32)


def _infer_adam(specs: Specs, params: dict[str, Any]) -> list[Output]:
    groups = _check(specs, params, 4)
    return [(s.dtype, s.shape) for i in (0, 2, 3) for s in groups[i]]


def _adam_samples(rng: np.random.Generator) -> list[Sample]:
    def draw() -> list[Any]:
        return [rng.uniform(-1, 1, s) for s in _EXACT_SHAPES]

    out = []
    for decoupled, t in ((True, 1), (False, 10)):
        seconds = [rng.uniform(0.01, 1, s) for s in _EXACT_SHAPES]
        numbers = (1e-2, 0.9, 0.999, 1e-8, 0.1, 1 - 0.9**t, 1 - 0.999**t)
        params = {"count": len(_EXACT_SHAPES), "decoupled": decoupled, "counted": False}
        tensors = (*draw(), *draw(), *draw(), *seconds)
        out.append(Sample((*tensors, *numbers), params, differentiable=False))
        for turn in (t, 0):
            counted = (*tensors, *numbers[:5], np.array(turn, np.float32))
            out.append(Sample(counted, {**params, "counted": True}, differentiable=False))
    return out


adam_step = _many(
    "adam_step",
    "One step of Adam, or AdamW with `decoupled` weight decay, over `count` parameters.\n\n"
    "Source: arXiv:1412.6980, arXiv:1711.05101. "
    "`xs` holds the parameters, gradients, first and second moments, then the numbers lr, beta1, beta2, eps, weight_decay,\n"
    "1 - beta1^t, 1 - beta2^t; if `counted`, in place of the last two, t as a tensor without axes, where 0 leaves everything\n"
    "as it is. Returns the new parameters, first and second moments.",
    _adam_step,
    _adam_decomposed,
    _infer_adam,
    {"count": 0, "decoupled": True, "counted": False},
    _adam_samples,
)

# --- stochastic gradient descent ------------------------------------------------------------------------------------


def _sgd_kinds(xs: Sequence[Any], count: int, *, counted: bool) -> int:
    """How many tensors there are for each parameter."""
    return 3 if len(xs) - 4 - counted == 3 * count else 2


def _sgd_step(*xs: Any, count: int, nesterov: bool = False, counted: bool = False) -> Any:
    kinds = _sgd_kinds(xs, count, counted=counted)
    groups = _groups(xs, count, kinds)
    lr, momentum, dampening, decay, *turn = xs[kinds * count :]
    if turn and not float(turn[0]):
        return tuple(x for i in range(0, kinds, 2) for x in groups[i])
    if turn and float(turn[0]) == 1:
        dampening = 0.0
    params, buffers = [], []
    for i, (p, g) in enumerate(zip(groups[0], groups[1], strict=True)):
        g = g + decay * p
        if kinds == 3:
            b = momentum * groups[2][i] + (1 - dampening) * g
            g = g + momentum * b if nesterov else b
            buffers.append(b)
        params.append(p - lr * g)
    return (*params, *buffers)


def _sgd_decomposed(*xs: Any, count: int, nesterov: bool, counted: bool) -> Any:
    turn = xs[-1] if counted else None
    kinds = _sgd_kinds(xs, count, counted=counted)
    groups = _groups(xs, count, kinds)
    numbers = xs[kinds * count : len(xs) - counted]
    lr, momentum, dampening, decay = [_number(x, groups[0][0]) for x in numbers]
    if turn is not None:
        dampening = where(greater(turn, 1), dampening, 0.0)
    params, buffers = [], []
    for i, (p, g) in enumerate(zip(groups[0], groups[1], strict=True)):
        g = g + p * decay
        if kinds == 3:
            b = groups[2][i] * momentum + g * (1.0 - dampening)
            g = g + b * momentum if nesterov else b
            buffers.append(b)
        params.append(p - g * lr)
    return _taken(turn, (*params, *buffers), (*groups[0], *(groups[2] if kinds == 3 else ())))


def _infer_sgd(specs: Specs, params: dict[str, Any]) -> list[Output]:
    kinds = _sgd_kinds(specs, params["count"], counted=params["counted"])
    groups = _check(specs, params, kinds)
    return [(s.dtype, s.shape) for i in ((0, 2) if kinds == 3 else (0,)) for s in groups[i]]


def _sgd_samples(rng: np.random.Generator) -> list[Sample]:
    def draw() -> list[Any]:
        return [rng.uniform(-1, 1, s) for s in _EXACT_SHAPES]

    count = len(_EXACT_SHAPES)
    turns = [
        Sample((*draw(), *draw(), *draw(), 0.1, 0.9, 0.5, 0.01, np.array(t, np.float32)),
               {"count": count, "nesterov": False, "counted": True}, differentiable=False)
        for t in (0, 1, 2)
    ]  # fmt: skip
    return [
        *turns,
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
    "weight_decay; if `counted`, then the number of the step, from 1, as a tensor without axes: at 1 nothing is\n"
    "dampened, 0 leaves everything as it is. Returns the new parameters and buffers.",
    _sgd_step,
    _sgd_decomposed,
    _infer_sgd,
    {"count": 0, "nesterov": False, "counted": False},
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
    autocast=Autocast.FLOAT32,
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
