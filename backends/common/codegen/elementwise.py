"""Elementwise ops as groups of expression steps, and the access pattern of their operands.

All shader languages use it. A generator is a function
`group(runtime, inputs, outputs, steps, results)`: it evaluates `steps` over operands of any strides, broadcasts the
inputs to the common shape of the outputs, and writes value `results[i]` to output i.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from polyhal.backends.common.codegen.expressions import EXPRESSIONS, RELAXED, expression_of
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ScalarSpec, Spec, broadcast_strides, collapse
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.pointwise.fused_elementwise import GroupStep, operands, values_of
from polyhal.hal.ops.pointwise.promotion import operand_dtype
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Access = Literal["contiguous", "broadcast", "strided", "rows", "columns", "matrices"]
"""Access along the innermost axis: stride 1, stride 0, any other stride, or an element for each row, column or matrix."""

GroupGenerator = Callable[..., Launch]
ReductionGenerator = Callable[..., Launch | Declined]
"""`reduce_group(runtime, inputs, output, steps, result, (operation, axes))`: reduces value number `result`."""


@dataclass(frozen=True, slots=True)
class ExpressionStep:
    """One step of a group, in SSA form: `arguments` are value numbers, the inputs first, then the results of steps."""

    op: str
    arguments: tuple[int, ...]
    dtype: DType
    """Dtype that operands are cast to; the condition of `where` stays bool."""
    params: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ElementwiseOperand:
    """A tensor on the merged axes. `position` is its index in the argument list of the launch."""

    position: int
    dtype: DType
    strides: tuple[int, ...]
    access: Access
    aligned: bool

    def span(self, axes: Sequence[int]) -> int:
        """Return the distance in elements between the lowest and the highest address."""
        return sum(abs(step) * (n - 1) for n, step in zip(axes, self.strides, strict=True))

    def vectorizable(self, width: int) -> bool:
        """Return whether aligned vectors of `width` elements cover the innermost axis."""
        return self.access == "contiguous" and self.aligned and all(s % width == 0 for s in self.strides[:-1])


def merge_axes(
    inputs: Sequence[InputSpec | None], outputs: Sequence[Spec]
) -> tuple[tuple[int, ...], tuple[ElementwiseOperand, ...]]:
    """Return the lengths of the merged axes, innermost last, and the tensors on them in argument order."""
    shape = outputs[0].shape
    tensors = [(i, s) for i, s in enumerate([*inputs, *outputs]) if isinstance(s, Spec)]
    strides = [broadcast_strides(s.shape, s.strides, shape) for _, s in tensors]
    target = strides[-1]
    if not outputs[0].is_contiguous:
        # Order the axes by the output's strides, so that writes are sequential; the inputs follow.
        order = sorted(range(len(shape)), key=lambda axis: -abs(target[axis]))
        shape = tuple(shape[a] for a in order)
        strides = [tuple(s[a] for a in order) for s in strides]
    axes, merged = collapse(shape, tuple(strides))
    merged_operands = tuple(
        ElementwiseOperand(i, s.dtype, steps, access_of(steps[-1]), s.aligned)
        for (i, s), steps in zip(tensors, merged, strict=True)
    )
    return axes, merged_operands


def access_of(stride: int) -> Access:
    """Return the access pattern of an innermost stride."""
    return "broadcast" if stride == 0 else "contiguous" if stride == 1 else "strided"


def lower_core(
    group: GroupGenerator,
    runtime: Any,
    op: str,
    dtype: DType,
    inputs: Sequence[InputSpec | None],
    outputs: Sequence[Spec],
) -> Launch | Declined:
    """Lower an op, or an op name of the contract's core methods, on operands cast to `dtype`."""
    step = ExpressionStep(op, tuple(range(len(inputs))), dtype)
    refusal = _refusal(runtime, step)
    if refusal:
        return Declined(refusal)
    specs = [_scalar_precision(s, dtype) for s in inputs]
    return group(runtime, specs, outputs, [step], [len(inputs)])


def lowerings(group: GroupGenerator) -> dict[str, LoweringFunction]:
    """Return the lowering functions of all elementwise ops on one generator."""
    names = (*(e for e in EXPRESSIONS if e not in _INTERNAL), "clip")
    return {**{op: _lower_op(group, op) for op in names}, "cast": _lower_cast(group)}


def lower_fused(
    group: GroupGenerator, max_tensors: Callable[[Any], int], reduce_group: ReductionGenerator | None = None
) -> LoweringFunction:
    """Return the lowering function of `fused_elementwise`; `reduce_group` adds support for a final reduction.

    `max_tensors(runtime)` limits the total inputs and outputs of one launch.
    """

    def lower(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
    ) -> Launch | Declined:
        tensors = sum(isinstance(s, Spec) for s in inputs) + len(outputs)
        if tensors > max_tensors(runtime):
            return Declined(f"{tensors} tensors; a launch supports {max_tensors(runtime)}")
        translation = translate(runtime, inputs, params["steps"])
        if isinstance(translation, Declined):
            return translation
        steps, values = translation
        specs = scalars_in_precision(inputs, steps)
        results = [values[i] for i in params["results"]]
        if params["reduction"] is None:
            return group(runtime, specs, outputs, steps, results)
        if reduce_group is None:
            return Declined("no kernel for a group with a reduction")
        operation, axes, _ = params["reduction"]
        if not axes:
            return Declined("no axis is reduced")
        return reduce_group(runtime, specs, outputs[0], steps, results[0], (operation, axes))

    return lower


_INTERNAL = frozenset({"clip_low", "clip_high", "gelu_tanh", "gelu_tanh_grad", "opaque", *RELAXED.values()})
"""Expressions that are parts or variants of an op."""
_TANH_VARIANTS = {"gelu": "gelu_tanh", "gelu_grad": "gelu_tanh_grad"}


def translate(
    runtime: Any, inputs: Sequence[InputSpec | None], group: Sequence[GroupStep]
) -> tuple[list[ExpressionStep], list[int]] | Declined:
    """Translate a group of ops to expression steps, with the value number of each value of the group."""
    specs = values_of(tuple(inputs), group)
    steps: list[ExpressionStep] = []
    renumbered = list(range(len(inputs)))
    for op, arguments, values in group:
        numbers = tuple(-1 if a is None else renumbered[a] for a in arguments)
        params = OPS[op].bind(values)
        dtype = params["dtype"] if op == "cast" else operand_dtype(OPS[op], operands(arguments, specs))
        for step in _expand(op, numbers, dtype, params, len(inputs) + len(steps)):
            refusal = _refusal(runtime, step)
            if refusal:
                return Declined(refusal)
            steps.append(step)
            numbers = (len(inputs) + len(steps) - 1,)
        renumbered.append(numbers[0])
    return steps, renumbered


def _expand(op: str, numbers: tuple[int, ...], dtype: DType, params: Params, first: int) -> list[ExpressionStep]:
    """Expand one op to steps; the last step is its value. Without steps, the value is the first operand.

    `numbers` are the operands' value numbers, -1 for an absent one; `first` is the number of the first step's result.
    """
    if op == "clip":
        steps: list[ExpressionStep] = []
        for bound, half in zip(numbers[1:], ("clip_low", "clip_high"), strict=True):
            if bound >= 0:
                steps.append(ExpressionStep(half, (first if steps else numbers[0], bound), dtype))
        return steps
    if params.get("approximate") == "tanh":
        op = _TANH_VARIANTS[op]
    expression = expression_of(op)
    names = expression.params if expression is not None else ()
    return [ExpressionStep(op, numbers, dtype, tuple(float(params[n]) for n in names))]


def _refusal(runtime: Any, step: ExpressionStep) -> str:
    """Return the reason why a step cannot run on the device; empty if it can."""
    expression = expression_of(step.op)
    if expression is None:
        return f"no expression for {step.op}"
    if step.dtype.kind not in expression.templates:
        return f"{step.op} has no expression for {step.dtype.name}"
    return "" if step.dtype in runtime.capabilities.compute else f"the device does not compute in {step.dtype.name}"


def scalars_in_precision(inputs: Sequence[InputSpec | None], steps: Sequence[ExpressionStep]) -> list[InputSpec | None]:
    """Return the inputs; Python floats keep float64 precision if steps compute in float64."""
    return [_scalar_precision(s, _widest(steps)) for s in inputs]


def _widest(steps: Sequence[ExpressionStep]) -> DType:
    return dtypes.float64 if any(s.dtype is dtypes.float64 for s in steps) else dtypes.float32


def _scalar_precision(spec: InputSpec | None, dtype: DType) -> InputSpec | None:
    """Return the spec with float64 precision for a Python float used with float64 tensors."""
    if isinstance(spec, ScalarSpec) and spec.dtype.kind == "float" and dtype is dtypes.float64:
        return ScalarSpec(dtypes.float64)
    return spec


def _lower_op(group: GroupGenerator, op: str) -> LoweringFunction:
    """Lower one op as a group of one."""

    def lower(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
    ) -> Launch | Declined:
        arguments = tuple(None if s is None else i for i, s in enumerate(inputs))
        translation = translate(runtime, inputs, [(op, arguments, tuple(params.values()))])
        if isinstance(translation, Declined):
            return translation
        steps, values = translation
        return group(runtime, scalars_in_precision(inputs, steps), outputs, steps, [values[-1]])

    return lower


def _lower_cast(group: GroupGenerator) -> LoweringFunction:
    """Lower `cast` as a load and a store, which does not require arithmetic in either dtype."""

    def lower(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
    ) -> Launch | Declined:
        return group(runtime, inputs, outputs, [], [0])

    return lower
