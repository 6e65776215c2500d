"""Optimizer steps from the update rule of one element: over all parameters at once, on every backend from one formula.

A rule is a function `rule(ops, p, g, *states, t, NUMBERS..., FLAGS...)` that returns the new parameter and states. `ops` has
`sqrt`, `where` and the like for its operands, NumPy arrays or symbols. `t` is the number of the step, from 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.ops.arguments import arguments
from polyhal.hal.ops.declare import OPS, OpFunction, Output, Params, PartOfCall, Sample, Samples, Specs
from polyhal.hal.ops.layout.creation import broadcast_scalar
from polyhal.hal.ops.optim.multi_tensor import SHAPES, groups_of, multi_tensor
from polyhal.hal.ops.optim.rule_program import HOST, RuleProgram, correction_in_single_precision, trace_rule
from polyhal.hal.ops.pointwise.cast import in_dtype
from polyhal.hal.ops.pointwise.foreach_elementwise import filled_rows, foreach_elementwise
from polyhal.hal.ops.schema import REQUIRED, Schema, tensors
from polyhal.hal.ops.tensor_like import Numeric

Rule = Callable[..., tuple[Any, ...]]
StateNames = Callable[..., tuple[str, ...]]
"""From the flags to the names of the states, in the order in which the rule takes them."""


def _on_arrays(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The op on arrays; only Python numbers return one, which does not decide the dtype of results."""
    on_host = HOST[name]

    def call(*args: Any) -> Any:
        return function(*args) if any(isinstance(a, np.ndarray | np.generic) for a in args) else on_host(*args)

    return call


_ARRAYS = SimpleNamespace(**{name: _on_arrays(name, getattr(np, name, HOST[name])) for name in HOST})


def with_decay(ops: SimpleNamespace, g: Numeric, p: Numeric, weight_decay: Numeric) -> Any:
    """A gradient plus the weight decay of its parameter. A decay of 0 is left out: times an infinity it would be NaN."""
    return ops.where(ops.not_equal(weight_decay, 0.0), g + p * weight_decay, g)


@dataclass(frozen=True, slots=True)
class UpdateRule:
    """The rule of an op and the names of its states and numbers."""

    rule: Rule
    states: StateNames
    numbers: tuple[str, ...]
    flags: dict[str, Any]
    """Flags and their defaults."""
    _programs: dict[Any, RuleProgram] = field(default_factory=dict)

    def split(self, xs: Sequence[Any], params: Any) -> tuple[list[Sequence[Any]], Sequence[Any], Sequence[Any]]:
        """The inputs as groups of tensors, the number of the step, or one for each parameter, and the rule's numbers."""
        groups = 2 + len(self.states(**self.chosen(params)))
        rest = xs[groups * params["count"] :]
        steps = max(1, len(rest) - len(self.numbers))
        return groups_of(xs, params["count"], groups), rest[:steps], rest[steps:]

    def chosen(self, params: Any) -> dict[str, Any]:
        """Return the flags among the parameters of the op. A call that was recorded before a flag existed has its default."""
        return {k: params.get(k, default) for k, default in self.flags.items()}

    def program(self, kinds: tuple[DType, ...], step: DType | None, params: Any) -> RuleProgram:
        """The rule for dtypes of a parameter, its gradient and its states; `step` is that of its number in device memory."""
        flags = self.chosen(params)
        key = kinds, step, tuple(flags.values())
        if key not in self._programs:
            self._programs[key] = trace_rule(self.rule, kinds, self.numbers, step, flags)
        return self._programs[key]


RULES: dict[str, UpdateRule] = {}
"""By the name of the op."""


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
    is a tensor without axes, or one for each parameter, where 0 leaves everything unchanged. `positive` names states that are
    sums of squares, `variants` are the flags of samples, `draws` the numbers of samples.
    """
    _, keyword_only, defaults, _ = arguments(rule)
    flags = {name: defaults[name] for name in keyword_only if name in defaults}
    found = RULES[name] = UpdateRule(rule, states, tuple(numbers), flags)
    return multi_tensor(
        _reference(found),
        name=name,
        schema=Schema(
            ("xs",),
            variadic=True,
            params={"count": REQUIRED, **flags, "counted": False},
            mutates=(0,),
            variadic_outputs=True,
        ),
        infer=_infer(found),
        decompose=_decomposed(found),
        samples=_samples(found, positive, variants, draws or {}),
        without_empty=_without_empty(found),
    )


def _reference(found: UpdateRule) -> Callable[..., Any]:
    def reference(*xs: Any, **params: Any) -> Any:
        groups, steps, values = found.split(xs, params)
        given = {**dict(zip(found.numbers, values, strict=True)), **found.chosen(params)}
        rows = []
        for i, (p, g, *state) in enumerate(zip(*groups, strict=True)):
            t = float(steps[i if len(steps) > 1 else 0])
            rows.append(found.rule(_ARRAYS, p, g, *state, t=t, **given) if t else (p, *state))
        return tuple(x for column in zip(*rows, strict=True) for x in column)

    reference.__doc__ = found.rule.__doc__
    return reference


def _decomposed(found: UpdateRule) -> Callable[..., Any]:
    ops = SimpleNamespace(**{n: OPS[n].call for n in HOST if n != "correction"})
    ops.correction = lambda beta, t: correction_in_single_precision(ops, beta, t)

    def decomposed(*xs: Any, **params: Any) -> Any:
        groups, steps, values = found.split(xs, params)
        rows = list(zip(*groups, strict=True))
        counted, several = params["counted"], len(steps) > 1
        batches: dict[Any, list[int]] = {}
        for i, row in enumerate(rows):
            batches.setdefault((tuple(x.dtype for x in row), i if several else 0), []).append(i)
        new: list[Any] = [None] * len(rows)
        for (kinds, first), members in batches.items():
            program = found.program(kinds, steps[0].dtype if counted else None, params)
            own = [broadcast_scalar(v, (), program.wide) for v in (*(() if counted else steps), *values)]
            shared = (*(steps[first : first + 1] if counted else ()), *program.numbers(*own, functions=vars(ops)))
            lists = [rows[i][k] for k in range(len(groups)) for i in members]
            sizes = len(groups), len(members)
            called = foreach_elementwise([*lists, *shared], *sizes, program.steps, program.results, ())
            columns = groups_of(called, len(members), len(program.results))
            for i, row in zip(members, zip(*columns, strict=True), strict=True):
                kept = (rows[i][0], *rows[i][2:])
                new[i] = [in_dtype(n, k.dtype) for n, k in zip(row, kept, strict=True)]
        return tuple(x for column in zip(*new, strict=True) for x in column)

    return decomposed


def _without_empty(found: UpdateRule) -> Callable[[Specs, Params], PartOfCall]:
    def part(specs: Specs, params: Params) -> PartOfCall:
        groups, steps, _ = found.split(specs, params)
        count = params["count"]
        filled, inputs = filled_rows(specs, len(groups) + (len(steps) > 1), count)
        outputs = tuple(k * count + i for k in range(len(groups) - 1) for i in filled)
        return PartOfCall(inputs, outputs, {**params, "count": len(filled)})

    return part


def _infer(found: UpdateRule) -> Callable[[Specs, dict[str, Any]], list[Output]]:
    def infer(specs: Specs, params: Params) -> list[Output]:
        groups, steps, values = found.split(specs, params)
        for t in steps:
            is_tensor = isinstance(t, Spec) and t.shape == () and t.dtype.is_floating_point
            if params["counted"] != is_tensor:
                expected = "a floating-point tensor without axes" if params["counted"] else "a number"
                raise ValueError(f"the number of the step is {t}; expected {expected}")
        if len(values) != len(found.numbers) or len(steps) not in (1, params["count"]):
            problem = f"{len(steps) + len(values)} numbers after the tensors"
            raise ValueError(f"{problem}; expected one step, or one for each parameter, and {', '.join(found.numbers)}")
        for p, *others in zip(*groups, strict=True):
            for s in others:
                if not isinstance(p, Spec) or not isinstance(s, Spec) or s.shape != p.shape:
                    raise ValueError(f"a parameter is {p} and has a gradient or state {s}; expected one shape")
        return [(s.dtype, s.shape) for group in (groups[0], *groups[2:]) for s in tensors(tuple(group))]

    return infer


_DRAWS = {"lr": 0.01, "eps": 1e-3, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.99}
"""Numbers of samples, with an eps that shows."""


def _samples(
    found: UpdateRule, positive: Sequence[str], variants: Sequence[dict[str, Any]], draws: dict[str, float]
) -> Samples:
    def samples(rng: np.random.Generator) -> list[Sample]:
        drawn = []
        values = tuple({**_DRAWS, **draws}[n] for n in found.numbers)
        for number, chosen in enumerate(variants):
            flags = {**found.flags, **chosen}
            arrays = [rng.uniform(-1, 1, s) for _ in range(2) for s in SHAPES]
            for state in found.states(**flags):
                arrays += [rng.uniform(0.01 if state in positive else -1, 1, s) for s in SHAPES]
            several = (((7,), False), ((3,), True), ((0,), True), ((7, 3, 0, 1), True))
            for steps, counted in several[: 4 if not number else 1]:
                ts = [np.array(t, np.float32) if counted else t for t in steps]
                params = {"count": len(SHAPES), **flags, "counted": counted}
                drawn.append(Sample((*arrays, *ts, *values), params, differentiable=False))
        if "weight_decay" in found.numbers:
            drawn.append(_at_infinity(found, drawn[0]))
        return drawn

    return samples


def _at_infinity(found: UpdateRule, sample: Sample) -> Sample:
    """A sample with an infinite parameter and no weight decay."""
    inputs = [*sample.inputs]
    inputs[0] = inputs[0].copy()
    inputs[0][1] = np.inf
    inputs[len(inputs) - len(found.numbers) + found.numbers.index("weight_decay")] = 0.0
    return Sample(tuple(inputs), sample.params, special=True)
