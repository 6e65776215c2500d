"""Groups of elementwise ops on each of many tensors, as many of them in a launch as its parameters hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.codegen.elementwise import (
    ElementwiseOperand,
    ExpressionStep,
    scalars_in_precision,
    translate,
)
from polyhal.backends.common.codegen.statements import cast, evaluate
from polyhal.backends.common.launching.launch import Argument, LaunchSequence, Scalar, Tensor
from polyhal.backends.common.problems.multi_tensor import SlotOperand, TensorSlot, too_large
from polyhal.backends.opencl.lowering.pointwise.elementwise import division_options
from polyhal.backends.opencl.lowering.pointwise.kernel_text import KernelText
from polyhal.backends.opencl.lowering.support.multi_tensor import batches, by_alignment, definitions
from polyhal.backends.opencl.lowering.support.prefetch import prefetch_distance
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.ops.pointwise.foreach_elementwise import rows
from polyhal.hal.protocol import Declined, InputSpec, Launch

_MAX_TENSORS = 9
"""Lists and results together: a digit numbers them in the names of parameters."""
_MAX_SHARED = 4
"""Tensors and numbers that all share, for which parameters leave room."""


@dataclass(frozen=True, slots=True)
class _Group:
    """What is computed for a slot: `steps` on `inputs`, the tensors of its lists first; `results` are the values to write."""

    inputs: list[InputSpec | None]
    outputs: list[Spec]
    steps: list[ExpressionStep]
    results: list[int]
    lists: int

    @property
    def operands(self) -> tuple[SlotOperand, ...]:
        """The slot's tensors, with the names of their addresses in the generated text."""
        read = [SlotOperand(f"q{i}", s.dtype, True) for i, s in enumerate(self.inputs[: self.lists]) if s is not None]
        return (*read, *(SlotOperand(f"q{len(self.inputs) + i}", s.dtype) for i, s in enumerate(self.outputs)))


def _foreach(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    lists, count = params["lists"], params["count"]
    tensors = [s for s in (*inputs[: lists * count], *outputs) if isinstance(s, Spec)]
    shared = len(inputs) - lists * count
    if lists + shared + len(outputs) // count > _MAX_TENSORS or shared > _MAX_SHARED:
        return Declined("too many lists, or tensors that all share")
    if not all(s.is_contiguous for s in tensors) or too_large(tensors):
        return Declined("tensors that are not contiguous, or too large")
    first = next(rows(inputs, lists, count))
    translation = translate(runtime, first, params["steps"])
    if isinstance(translation, Declined):
        return translation
    steps, values = translation
    specs = scalars_in_precision(first, steps)
    group = _Group(specs, list(outputs[::count]), steps, [values[r] for r in params["results"]], lists)
    slots = [_slot(inputs, outputs, lists, count, i) for i in range(count)]
    launches: list[Launch] = []
    for aligned, part in by_alignment(runtime, slots):
        launches += _launches(runtime, group, part, aligned, lists * count)
    return LaunchSequence(launches)


def _slot(
    inputs: Sequence[InputSpec | None], outputs: Sequence[Spec], lists: int, count: int, i: int
) -> TensorSlot:
    """The tensors at position `i` of the lists, then of the results."""
    read = range(i, lists * count, count)
    written = range(i, len(outputs), count)
    specs = [s for s in (*(inputs[k] for k in read), *(outputs[k] for k in written)) if isinstance(s, Spec)]
    arguments = (*map(Tensor, read), *(Tensor(len(inputs) + k) for k in written))
    return TensorSlot(arguments, specs[0].size, all(s.aligned for s in specs))


def _launches(
    runtime: Runtime, group: _Group, slots: Sequence[TensorSlot], aligned: bool, first_shared: int
) -> list[Launch]:
    """Return the launches of slots that are all aligned, or that all may be not."""
    operands = group.operands
    text, shared = _text(group, first_shared)
    real = "double" if any(o.dtype.itemsize == 8 for o in operands) else "float"
    launches: list[Launch] = []
    for batch in batches(runtime, operands, slots):
        sizes = definitions(runtime, operands, real, slots=batch.slots, aligned=aligned)
        generated: dict[str, str | int | bool] = {
            "PREFETCH_DISTANCE": prefetch_distance(runtime),
            **dict.fromkeys(sorted(text.dialect.headers), 1),
            **({"NUMBERS": text.members(), "UNPACK_NUMBERS": text.unpack("numbers")} if text.numbers else {}),
            "SHARED": "".join(f", {p}" for p in text.parameters),
            **text.body(),
        }
        width = int(sizes["GROUP"])
        launches.append(
            runtime.launch(
                "pointwise/foreach", {**sizes, **generated}, {**batch.args, **shared}, (batch.chunks * width,), (width,),
                options=division_options(runtime),
            )
        )  # fmt: skip
    return launches


def _text(group: _Group, first_shared: int) -> tuple[KernelText, dict[str, Argument]]:
    """Return the generated parts of the kernel, and the arguments of what all slots share."""
    text = KernelText()
    operands = []
    for position, spec in enumerate(group.inputs):
        if not isinstance(spec, Spec):
            continue
        is_shared = position >= group.lists
        operand = ElementwiseOperand(position, spec.dtype, (1,), "broadcast" if is_shared else "contiguous", spec.aligned)
        operands.append(operand)
        if is_shared:
            text.tensor(operand)
            text.locate.append(
                f"__global const STORAGE({spec.dtype.name}) *q{position} = p{position} + p{position}_offset;"
            )
    values = evaluate(text, group.steps, text.inputs(group.inputs, operands))
    for i, (spec, result) in enumerate(zip(group.outputs, group.results, strict=True)):
        target = ElementwiseOperand(len(group.inputs) + i, spec.dtype, (1,), "contiguous", spec.aligned)
        text.write(target, cast(text, values[result], spec.dtype))
    moved = first_shared - group.lists
    return text, {
        name: Tensor(x.index + moved) if isinstance(x, Tensor) else Scalar(x.index + moved) if isinstance(x, Scalar) else x
        for name, x in text.args.items()
    }


LOWERINGS = {"foreach_elementwise": _foreach}
