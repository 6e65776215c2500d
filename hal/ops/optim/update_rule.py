"""Optimizer steps from the update rule of one element: over all parameters at once, in NumPy and in ops from one formula.

A rule is a function `rule(ops, p, g, *states, t, NUMBERS..., FLAGS...)` that returns the new parameter and states. `ops` has
`sqrt`, `where` and the like for what it computes with, NumPy arrays or symbols. `t` is the number of the step, from 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from polyhal.hal.dtypes import accumulator
from polyhal.hal.layout import Spec
from polyhal.hal.ops.arguments import arguments
from polyhal.hal.ops.declare import OpFunction, Output, Sample, Samples, Specs
from polyhal.hal.ops.optim.multi_tensor import SHAPES, groups_of, multi_tensor
from polyhal.hal.ops.optim.step import as_tensor, where_stepping
from polyhal.hal.ops.pointwise.arithmetic import abs_, sign
from polyhal.hal.ops.pointwise.cast import in_dtype
from polyhal.hal.ops.pointwise.exponential import exp, expm1, log, pow_, sqrt
from polyhal.hal.ops.pointwise.logic import not_equal
from polyhal.hal.ops.pointwise.selection import maximum, minimum, where
from polyhal.hal.ops.schema import REQUIRED, Schema, tensors

Rule = Callable[..., tuple[Any, ...]]
StateNames = Callable[..., tuple[str, ...]]
"""From the flags to the names of the states, in the order in which the rule takes them."""

SYMBOLS = SimpleNamespace(
    abs=abs_,
    exp=exp,
    expm1=expm1,
    log=log,
    maximum=maximum,
    minimum=minimum,
    not_equal=not_equal,
    pow=pow_,
    sign=sign,
    sqrt=sqrt,
    where=where,
)
ARRAYS = SimpleNamespace(
    abs=np.abs, exp=np.exp, expm1=np.expm1, log=np.log, maximum=np.maximum, minimum=np.minimum, not_equal=np.not_equal,
    pow=np.power, sign=np.sign, sqrt=np.sqrt, where=np.where,
)  # fmt: skip


def with_decay(ops: Any, g: Any, p: Any, weight_decay: Any) -> Any:
    """A gradient plus the weight decay of its parameter. A decay of 0 is left out: times an infinity it would be NaN."""
    return ops.where(ops.not_equal(weight_decay, 0.0), g + p * weight_decay, g)


def update_rule(
    rule: Rule,
    *,
    name: str,
    states: StateNames,
    numbers: Sequence[str],
    positive: Sequence[str] = (),
    variants: Sequence[dict[str, Any]] = ({},),
    draws: dict[str, float] | None = None,
) -> OpFunction:
    """Declare the op of a rule. Its inputs are parameters, gradients and states, group by group, then `t` and the numbers.

    Flags of the rule, its keyword-only parameters with defaults, become parameters of the op after `count`. With `counted`, `t`
    is a tensor without axes, where 0 leaves everything unchanged. `positive` names states that are sums of squares,
    `variants` are the flags of samples, `draws` the numbers of samples.
    """
    _, keyword_only, defaults, _ = arguments(rule)
    flags = {name: defaults[name] for name in keyword_only if name in defaults}

    def split(xs: Sequence[Any], params: dict[str, Any]) -> tuple[list[Sequence[Any]], Any, Sequence[Any]]:
        chosen = {k: params[k] for k in flags}
        groups = 2 + len(states(**chosen))
        rest = xs[groups * params["count"] :]
        return groups_of(xs, params["count"], groups), rest[0], rest[1:]

    def reference(*xs: Any, **params: Any) -> Any:
        groups, t, values = split(xs, params)
        kept = (*groups[0], *(x for group in groups[2:] for x in group))
        if not float(t):
            return kept
        given = {**dict(zip(numbers, values, strict=True)), **{k: params[k] for k in flags}}
        rows = [rule(ARRAYS, *row, t=float(t), **given) for row in zip(*groups, strict=True)]
        return tuple(x for column in zip(*rows, strict=True) for x in column)

    def decomposed(*xs: Any, **params: Any) -> Any:
        groups, t, values = split(xs, params)
        first = groups[0][0]
        counted = params["counted"]
        step = in_dtype(t, accumulator(first.dtype)) if counted else as_tensor(t, first)
        given = {n: as_tensor(v, first) for n, v in zip(numbers, values, strict=True)} | {k: params[k] for k in flags}
        rows = []
        for p, g, *state in zip(*groups, strict=True):
            wide = state[0].dtype if state else step.dtype
            rows.append(rule(SYMBOLS, in_dtype(p, wide), in_dtype(g, wide), *state, t=step, **given))
        new = [x for column in zip(*rows, strict=True) for x in column]
        kept = (*groups[0], *(x for group in groups[2:] for x in group))
        cast = tuple(in_dtype(n, k.dtype) for n, k in zip(new, kept, strict=True))
        return where_stepping(t if counted else None, cast, kept)

    def infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
        groups, t, values = split(specs, params)
        if params["counted"] != isinstance(t, Spec):
            raise ValueError(f"the step is {t}; expected a {'tensor without axes' if params['counted'] else 'number'}")
        if len(values) != len(numbers):
            raise ValueError(f"{len(values)} numbers after the step; expected {', '.join(numbers)}")
        for p, *others in zip(*groups, strict=True):
            for s in others:
                if not isinstance(p, Spec) or not isinstance(s, Spec) or s.shape != p.shape:
                    raise ValueError(f"a parameter is {p} and has a gradient or state {s}; expected one shape")
        return [(s.dtype, s.shape) for group in (groups[0], *groups[2:]) for s in tensors(tuple(group))]

    reference.__doc__ = rule.__doc__
    return multi_tensor(
        reference,
        name=name,
        schema=Schema(
            ("xs",),
            variadic=True,
            params={"count": REQUIRED, **flags, "counted": False},
            mutates=(0,),
            variadic_outputs=True,
        ),
        infer=infer,
        decompose=decomposed,
        samples=_samples(states, numbers, positive, variants, draws or {}),
    )


_DRAWS = {"lr": 0.01, "eps": 1e-3, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.99}
"""Numbers of samples, with an eps that shows."""


def _samples(
    states: StateNames,
    numbers: Sequence[str],
    positive: Sequence[str],
    variants: Sequence[dict[str, Any]],
    draws: dict[str, float],
) -> Samples:
    def samples(rng: np.random.Generator) -> list[Sample]:
        found = []
        values = tuple({**_DRAWS, **draws}[n] for n in numbers)
        for number, flags in enumerate(variants):
            names = states(**flags)
            tensors_drawn = [rng.uniform(-1, 1, s) for _ in range(2) for s in SHAPES]
            for state in names:
                tensors_drawn += [rng.uniform(0.01 if state in positive else -1, 1, s) for s in SHAPES]
            for t in (7, np.array(3, np.float32), np.array(0, np.float32))[: 3 if not number else 1]:
                params = {"count": len(SHAPES), **flags, "counted": isinstance(t, np.ndarray)}
                found.append(Sample((*tensors_drawn, t, *values), params, differentiable=False))
        return found

    return samples
