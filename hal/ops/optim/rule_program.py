"""Update rules as programs: numbers that the host computes at every step, and pointwise steps on the tensors of a parameter.

A rule is called once, on symbols. Arithmetic without tensors stays on the host, in double precision: 1 - beta for
beta = 0.999 would be off by 5e-5 in single precision. The rest becomes the steps of a group, as `foreach_elementwise` takes
them, those that do not depend on elements first.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.ops.pointwise.fused_elementwise import GroupStep
from polyhal.hal.ops.tensor_like import Numeric

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import ParamValues

_NUMBER, _SHARED, _ELEMENT = range(3)
"""Kinds of symbols: on the host; the same for all elements, on the device; one for each element."""

HOST: dict[str, Callable[..., Any]] = {
    "abs": abs, "add": operator.add, "correction": lambda beta, t: 1 - beta**t, "divide": operator.truediv,
    "expm1": math.expm1, "greater": operator.gt, "less": operator.lt, "log": math.log, "maximum": max, "minimum": min,
    "multiply": operator.mul, "negative": operator.neg, "not_equal": operator.ne, "pow": math.pow,
    "sign": lambda x: (x > 0) - (x < 0), "sqrt": math.sqrt, "subtract": operator.sub,
    "where": lambda condition, x, y: x if condition else y,
}  # fmt: skip
"""The ops of rules on Python numbers. `correction(beta, t)` is that of a running mean that begins with zeros."""


def correction_in_single_precision(ops: SimpleNamespace, beta: Numeric, t: Numeric) -> Any:
    """1 - beta^t, without the cancellation of a power that is close to 1."""
    return ops.negative(ops.expm1(ops.multiply(t, ops.log(ops.maximum(beta, _LEAST_BETA)))))


_LEAST_BETA = 1e-30
"""Replaces 0, whose logarithm is infinite, which shaders may not support; every power of both is 0."""


class _Symbol:
    """A value of a rule that is being traced."""

    __slots__ = ("args", "kind", "op", "params", "program")

    def __init__(self, program: _Trace, kind: int, op: str, args: tuple[_Symbol, ...], params: ParamValues) -> None:
        self.program, self.kind, self.op, self.args, self.params = program, kind, op, args, params

    def __add__(self, other: _Symbol) -> Any:
        return self.program.call("add", self, other)

    def __radd__(self, other: float) -> Any:
        return self.program.call("add", other, self)

    def __sub__(self, other: _Symbol | float) -> Any:
        return self.program.call("subtract", self, other)

    def __rsub__(self, other: float) -> Any:
        return self.program.call("subtract", other, self)

    def __mul__(self, other: _Symbol) -> Any:
        return self.program.call("multiply", self, other)

    def __rmul__(self, other: float) -> Any:
        return self.program.call("multiply", other, self)

    def __truediv__(self, other: _Symbol) -> Any:
        return self.program.call("divide", self, other)

    def __rtruediv__(self, other: float) -> Any:
        return self.program.call("divide", other, self)

    def __neg__(self) -> Any:
        return self.program.call("negative", self)

    def __gt__(self, other: float) -> Any:
        return self.program.call("greater", self, other)

    def __lt__(self, other: float) -> Any:
        return self.program.call("less", self, other)


class _Trace:
    """The symbols of one rule in the order in which they were made; equal ones are one."""

    def __init__(self) -> None:
        self.symbols: dict[Any, _Symbol] = {}
        self.ops = SimpleNamespace(**{name: lambda *args, name=name: self.call(name, *args) for name in HOST})

    def symbol(self, kind: int, op: str, args: tuple[_Symbol, ...] = (), params: ParamValues = ()) -> _Symbol:
        key = op, args, tuple(map(repr, params))  # 1 == 1.0 == True
        return self.symbols.setdefault(key, _Symbol(self, kind, op, args, params))

    def call(self, op: str, *args: Any) -> _Symbol:
        operands = [a if isinstance(a, _Symbol) else self.symbol(_NUMBER, "constant", (), (float(a),)) for a in args]
        kind = max(x.kind for x in operands)
        if op == "correction" and kind != _NUMBER:
            return correction_in_single_precision(self.ops, *operands)  # type: ignore[no-any-return]
        if op == "where" and kind != _NUMBER and operands[0].kind == _NUMBER:
            zero = self.symbol(_NUMBER, "constant", (), (0.0,))
            operands[0] = self.symbol(_SHARED, "not_equal", (operands[0], zero))
        return self.symbol(kind, op, tuple(operands))

    def cast(self, x: _Symbol, source: DType, target: DType) -> _Symbol:
        return x if source is target else self.symbol(x.kind, "cast", (x,), (target,))


@dataclass(frozen=True, slots=True)
class RuleProgram:
    """A rule for tensors of certain dtypes.

    Values are numbered as in `foreach_elementwise`: the lists, the number of the step if it is a tensor, the host's numbers,
    and the results of `steps`.
    """

    steps: tuple[GroupStep, ...]
    results: tuple[int, ...]
    """The new parameter and states, in `wide`."""
    wide: DType
    """The dtype that the rule computes in."""
    count: int
    """How many numbers the host computes."""
    _constants: tuple[float, ...]
    _host: tuple[tuple[str, tuple[int, ...]], ...]
    """Ops on Python numbers: the rule's own, then the constants, then results."""
    _chosen: tuple[int, ...]

    def numbers(self, *values: Any, functions: Any = HOST) -> tuple[Any, ...]:
        """The host's numbers, from the number of the step, if it is one, and the rule's own numbers."""
        found = [*values, *self._constants]
        for op, args in self._host:
            found.append(functions[op](*[found[a] for a in args]))
        return tuple([found[i] for i in self._chosen])


def trace_rule(
    rule: Callable[..., tuple[Any, ...]],
    kinds: Sequence[DType],
    names: Sequence[str],
    step: DType | None,
    flags: dict[str, Any],
) -> RuleProgram:
    """Trace a rule. `kinds` are the dtypes of a parameter, its gradient and its states, `names` those of the numbers.

    `step` is the dtype of the number of the step if it is a tensor; then 0 leaves everything unchanged.
    """
    trace = _Trace()
    wide = dtypes.float64 if dtypes.float64 in kinds else dtypes.float32
    lists = [trace.symbol(_ELEMENT, "list", (), (i,)) for i in range(len(kinds))]
    tensors = [trace.cast(x, kind, wide) for x, kind in zip(lists, kinds, strict=True)]
    t = trace.symbol(_NUMBER if step is None else _SHARED, "step")
    counted = t if step is None else trace.cast(t, step, wide)
    numbers = [trace.symbol(_NUMBER, "number", (), (name,)) for name in names]
    new: Sequence[Any] = rule(trace.ops, *tensors, t=counted, **dict(zip(names, numbers, strict=True)), **flags)
    if step is not None:
        kept = (tensors[0], *tensors[2:])
        new = [trace.call("where", counted > 0.0, n, k) for n, k in zip(new, kept, strict=True)]
    given = numbers if step is not None else [t, *numbers]
    return _program(new, [*lists, *([] if step is None else [t])], given, wide)


def trace_formula(
    formula: Callable[..., Sequence[Any]],
    kinds: Sequence[DType],
    singles: int,
    names: Sequence[str],
    results: Sequence[DType],
) -> RuleProgram:
    """Trace a formula of one element of lists of tensors of the dtypes `kinds`, and of numbers `names` of the host.

    The last `singles` lists have one number for each tensor. Values are cast to `results`; further ones stay in `wide`.
    """
    trace = _Trace()
    wide = dtypes.float64 if dtypes.float64 in kinds else dtypes.float32
    lists = [
        trace.symbol(_ELEMENT if i < len(kinds) - singles else _SHARED, "list", (), (i,)) for i in range(len(kinds))
    ]
    tensors = [trace.cast(x, kind, wide) for x, kind in zip(lists, kinds, strict=True)]
    numbers = [trace.symbol(_NUMBER, "number", (), (name,)) for name in names]
    new = formula(trace.ops, *tensors, **dict(zip(names, numbers, strict=True)))
    cast = [trace.cast(x, wide, kind) for x, kind in zip(new, results, strict=False)]
    return _program([*cast, *new[len(results) :]], lists, numbers, wide)


def _program(new: Sequence[_Symbol], tensors: Sequence[_Symbol], given: Sequence[_Symbol], wide: DType) -> RuleProgram:
    used: dict[_Symbol, None] = {}

    def visit(x: _Symbol) -> None:
        if x not in used:
            for a in x.args:
                visit(a)
            used[x] = None

    for x in new:
        visit(x)
    constants = [x for x in used if x.op == "constant"]
    on_host = [x for x in used if x.kind == _NUMBER and x.args]
    host = {x: i for i, x in enumerate([*given, *constants, *on_host])}
    chosen = list(dict.fromkeys(a for x in used if x.kind != _NUMBER for a in x.args if a.kind == _NUMBER))
    device = sorted((x for x in used if x.kind != _NUMBER and x.args), key=lambda x: x.kind)
    value = {x: i for i, x in enumerate([*tensors, *chosen, *device])}
    return RuleProgram(
        tuple((x.op, tuple(value[a] for a in x.args), x.params) for x in device),
        tuple(value[x] for x in new),
        wide,
        len(chosen),
        tuple(x.params[0] for x in constants),
        tuple((x.op, tuple(host[a] for a in x.args)) for x in on_host),
        tuple(host[x] for x in chosen),
    )
