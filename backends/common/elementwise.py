"""Elementwise ops as groups of steps, and how their operands lie: shared by the generators of all shader languages.

A generator is a function `group(runtime, name, inputs, outputs, steps, results)` that evaluates `steps` over operands of
any layout, broadcasting the inputs to the outputs' one shape, and writes value `results[i]` to output i.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from polyhal.backends.common.expressions import EXPRESSIONS, find
from polyhal.backends.common.lowering import LoweringFunction
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ScalarSpec, Spec, broadcast_strides, collapse
from polyhal.hal.ops.elementwise import operand_dtype
from polyhal.hal.protocol import Declined, InputSpec, Launch

Walk = Literal["unit", "splat", "step"]
"""Along the innermost axis: consecutive elements, the same element, or a fixed distance."""

Group = Callable[..., Launch]


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
    """One op on operands cast to `dtype`."""
    expression = find(op)
    if expression is None:
        return Declined(f"no expression for {op}")
    if dtype.kind not in expression.templates:
        return Declined(f"{op} has no form for {dtype.name}")
    if dtype not in runtime.capabilities.compute:
        return Declined(f"the device does not compute in {dtype.name}")
    sources = [_number_spec(s, dtype) for s in inputs]
    step = Step(op, tuple(range(len(inputs))), dtype, params)
    return group(runtime, f"elementwise.{op}", sources, outputs, [step], [len(inputs)])


def lowerings(group: Group) -> dict[str, LoweringFunction]:
    """The lowering functions of all elementwise ops on one generator."""
    return {
        **{op: _plain(group, op) for op in EXPRESSIONS if op not in _PARTS},
        "gelu": _gelu(group, "gelu", "gelu_tanh"),
        "gelu_grad": _gelu(group, "gelu_grad", "gelu_tanh_grad"),
        "clip": _clip(group),
        "cast": _cast(group),
    }


_PARTS = frozenset({"clip_low", "clip_high", "gelu_tanh", "gelu_tanh_grad", "gelu", "gelu_grad", "cast"})
"""Expressions that are parts or variants of an op, and those with a lowering function of their own."""


def _number_spec(spec: InputSpec | None, dtype: DType) -> InputSpec | None:
    """A Python float beside float64 tensors keeps its precision."""
    if isinstance(spec, ScalarSpec) and spec.dtype.kind == "float" and dtype is dtypes.float64:
        return ScalarSpec(dtypes.float64)
    return spec


def _plain(group: Group, op: str) -> LoweringFunction:
    def lower(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        values = tuple(float(params[p]) for p in EXPRESSIONS[op].params)
        return single(group, runtime, op, operand_dtype(op, inputs), inputs, outputs, values)

    return lower


def _gelu(group: Group, op: str, tanh_form: str) -> LoweringFunction:
    def lower(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        form = tanh_form if params.get("approximate", "none") == "tanh" else op
        return single(group, runtime, form, operand_dtype(op, inputs), inputs, outputs)

    return lower


def _clip(group: Group) -> LoweringFunction:
    def lower(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        dtype = operand_dtype("clip", inputs)
        sources = [_number_spec(s, dtype) for s in inputs]
        steps, value = [], 0
        for place, op in ((1, "clip_low"), (2, "clip_high")):
            if inputs[place] is not None:
                steps.append(Step(op, (value, place), dtype))
                value = 2 + len(steps)
        return group(runtime, "elementwise.clip", sources, outputs, steps, [value])

    return lower


def _cast(group: Group) -> LoweringFunction:
    def lower(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        return group(runtime, "elementwise.cast", inputs, outputs, [], [0])

    return lower
