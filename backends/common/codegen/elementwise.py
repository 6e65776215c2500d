"""Elementwise ops as groups of steps, and how their operands lie: shared by the generators of all shader languages.

A generator is a function `group(runtime, name, inputs, outputs, steps, results)` that evaluates `steps` over operands of
any layout, broadcasting the inputs to the outputs' one shape, and writes value `results[i]` to output i.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from polyhal.backends.common.codegen.expressions import EXPRESSIONS, find
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ScalarSpec, Spec, broadcast_strides, collapse
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.pointwise.elementwise import operand_dtype
from polyhal.hal.ops.pointwise.fused_elementwise import GroupStep, operands, values_of
from polyhal.hal.protocol import Declined, InputSpec, Launch

Walk = Literal["unit", "splat", "step"]
"""Along the innermost axis: consecutive elements, the same element, or a fixed distance."""

Group = Callable[..., Launch]
Reduced = Callable[..., Launch | Declined]
"""A generator `reduced(runtime, name, inputs, output, steps, result, (operation, axes))` that reduces the value `result`."""


@dataclass(frozen=True, slots=True)
class Step:
    """One op of a group. `arguments` number the values: first the inputs of the launch, then the results of steps."""

    op: str
    arguments: tuple[int, ...]
    dtype: DType
    """What the operands are cast to; the condition of `where` stays bool."""
    params: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor on the merged axes. `position` is its place in the launch's argument list."""

    position: int
    dtype: DType
    strides: tuple[int, ...]
    walk: Walk
    aligned: bool

    def reach(self, axes: Sequence[int]) -> int:
        """The distance in elements between the lowest and the highest element."""
        return sum(abs(step) * (n - 1) for n, step in zip(axes, self.strides, strict=True))

    def in_vectors(self, width: int) -> bool:
        """Whether it is walked in aligned vectors of so many neighbours."""
        return self.walk == "unit" and self.aligned and all(s % width == 0 for s in self.strides[:-1])


def lay_out(inputs: Sequence[InputSpec | None], outputs: Sequence[Spec]) -> tuple[tuple[int, ...], tuple[Operand, ...]]:
    """The axes that remain after merging, innermost last, and the tensors on them in the order of the arguments."""
    shape = outputs[0].shape
    tensors = [(i, s) for i, s in enumerate([*inputs, *outputs]) if isinstance(s, Spec)]
    strides = [broadcast_strides(s.shape, s.strides, shape) for _, s in tensors]
    target = strides[-1]
    if not outputs[0].is_contiguous:
        # Walk the output in the order of its memory; the inputs follow.
        order = sorted(range(len(shape)), key=lambda axis: -abs(target[axis]))
        shape = tuple(shape[a] for a in order)
        strides = [tuple(s[a] for a in order) for s in strides]
    axes, merged = collapse(shape, tuple(strides))
    operands = tuple(
        Operand(i, s.dtype, steps, "splat" if steps[-1] == 0 else "unit" if steps[-1] == 1 else "step", s.aligned)
        for (i, s), steps in zip(tensors, merged, strict=True)
    )
    return axes, operands


def single(
    group: Group,
    runtime: Any,
    op: str,
    dtype: DType,
    inputs: Sequence[InputSpec | None],
    outputs: Sequence[Spec],
    params: tuple[float, ...] = (),
) -> Launch | Declined:
    """One op, or a name of the contract, on operands cast to `dtype`."""
    step = Step(op, tuple(range(len(inputs))), dtype, params)
    refusal = _refusal(runtime, step)
    if refusal:
        return Declined(refusal)
    sources = [_number_spec(s, dtype) for s in inputs]
    return group(runtime, f"elementwise.{op}", sources, outputs, [step], [len(inputs)])


def lowerings(group: Group) -> dict[str, LoweringFunction]:
    """The lowering functions of all elementwise ops on one generator."""
    names = (*(e for e in EXPRESSIONS if e not in _PARTS), "clip")
    return {**{op: _alone(group, op) for op in names}, "cast": _cast(group)}


def fused(group: Group, most: Callable[[Any], int], reduced: Reduced | None = None) -> LoweringFunction:
    """The lowering function of `fused_elementwise`; `reduced` adds a reduction.

    `most` tells how many tensors one launch on a runtime takes, inputs and outputs together.
    """

    def lower(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        tensors = sum(isinstance(s, Spec) for s in inputs) + len(outputs)
        if tensors > most(runtime):
            return Declined(f"{tensors} tensors; a launch takes {most(runtime)}")
        found = translate(runtime, inputs, params["steps"])
        if isinstance(found, Declined):
            return found
        steps, places = found
        name = "fused." + "_".join(step[0] for step in params["steps"][:_NAMED])
        sources = [_number_spec(s, _widest(steps)) for s in inputs]
        results = [places[i] for i in params["results"]]
        if params["reduction"] is None:
            return group(runtime, name, sources, outputs, steps, results)
        if reduced is None:
            return Declined("no kernel reduces a group")
        operation, axes, _ = params["reduction"]
        if not axes:
            return Declined("no axis is reduced")
        return reduced(runtime, name, sources, outputs[0], steps, results[0], (operation, axes))

    return lower


_NAMED = 3
"""Steps whose ops appear in the name of a launch."""

_PARTS = frozenset({"clip_low", "clip_high", "gelu_tanh", "gelu_tanh_grad"})
"""Expressions that are parts or variants of an op."""
_TANH_FORMS = {"gelu": "gelu_tanh", "gelu_grad": "gelu_tanh_grad"}


def translate(
    runtime: Any, inputs: Sequence[InputSpec | None], group: Sequence[GroupStep]
) -> tuple[list[Step], list[int]] | Declined:
    """The steps of a group of ops in terms of expressions, and where each value of the group is among theirs."""
    specs = values_of(tuple(inputs), group)
    steps: list[Step] = []
    places = list(range(len(inputs)))
    for op, arguments, values in group:
        taken = tuple(-1 if a is None else places[a] for a in arguments)
        params = OPS[op].bind(values)
        dtype = params["dtype"] if op == "cast" else operand_dtype(op, operands(arguments, specs))
        for made in _expressions(op, taken, dtype, params, len(inputs) + len(steps)):
            refusal = _refusal(runtime, made)
            if refusal:
                return Declined(refusal)
            steps.append(made)
            taken = (len(inputs) + len(steps) - 1,)
        places.append(taken[0])
    return steps, places


def _expressions(op: str, taken: tuple[int, ...], dtype: DType, params: Mapping[str, Any], first: int) -> list[Step]:
    """The steps of one op, of which the last gives its value; without steps the value is the first operand itself."""
    if op == "clip":
        steps: list[Step] = []
        for bound, part in zip(taken[1:], ("clip_low", "clip_high"), strict=True):
            if bound >= 0:
                steps.append(Step(part, (first if steps else taken[0], bound), dtype))
        return steps
    if params.get("approximate") == "tanh":
        op = _TANH_FORMS[op]
    expression = EXPRESSIONS.get(op)
    names = expression.params if expression is not None else ()
    return [Step(op, taken, dtype, tuple(float(params[n]) for n in names))]


def _refusal(runtime: Any, step: Step) -> str:
    """Why a step cannot run on the device; empty when it can."""
    expression = find(step.op)
    if expression is None:
        return f"no expression for {step.op}"
    if step.dtype.kind not in expression.templates:
        return f"{step.op} has no form for {step.dtype.name}"
    return "" if step.dtype in runtime.capabilities.compute else f"the device does not compute in {step.dtype.name}"


def _widest(steps: Sequence[Step]) -> DType:
    return dtypes.float64 if any(s.dtype is dtypes.float64 for s in steps) else dtypes.float32


def _number_spec(spec: InputSpec | None, dtype: DType) -> InputSpec | None:
    """A Python float beside float64 tensors keeps its precision."""
    if isinstance(spec, ScalarSpec) and spec.dtype.kind == "float" and dtype is dtypes.float64:
        return ScalarSpec(dtypes.float64)
    return spec


def _alone(group: Group, op: str) -> LoweringFunction:
    """One op as a group of one step."""

    def lower(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        arguments = tuple(None if s is None else i for i, s in enumerate(inputs))
        found = translate(runtime, inputs, [(op, arguments, tuple(params.values()))])
        if isinstance(found, Declined):
            return found
        steps, places = found
        sources = [_number_spec(s, _widest(steps)) for s in inputs]
        return group(runtime, f"elementwise.{op}", sources, outputs, steps, [places[-1]])

    return lower


def _cast(group: Group) -> LoweringFunction:
    """Conversion is a matter of storing, so that a device need not compute in the dtype."""

    def lower(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        return group(runtime, "elementwise.cast", inputs, outputs, [], [0])

    return lower
