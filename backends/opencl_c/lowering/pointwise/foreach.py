"""Groups of elementwise ops on each of many tensors, as many in a launch as its parameters can hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from polyhal.backends.common.codegen.elementwise import (
    Access,
    ElementwiseOperand,
    ExpressionStep,
    scalars_in_precision,
    translate,
)
from polyhal.backends.common.codegen.statements import RegisterValue, cast, evaluate, only_stored
from polyhal.backends.common.launching.launch import LaunchSequence, Scalar, ScalarType, Table, Tensor, Workspace
from polyhal.backends.common.problems.foreach import leading, products_in_sums, relaxed, slots_of
from polyhal.backends.common.problems.multi_tensor import SlotSteps, TensorSlot, sums_of_chunks
from polyhal.backends.opencl_c.lowering.pointwise.elementwise import division_options
from polyhal.backends.opencl_c.lowering.pointwise.kernel_text import KernelText
from polyhal.backends.opencl_c.lowering.support.multi_tensor import batches, by_alignment, chunk_ranges, definitions
from polyhal.backends.opencl_c.lowering.support.prefetch import prefetch_distance
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def _foreach(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    found = slots_of(inputs, outputs, params)
    return found if isinstance(found, Declined) else over_slots(runtime, *found)


def over_slots(runtime: Runtime, group: SlotSteps, slots: Sequence[TensorSlot]) -> LaunchSequence | Declined:
    """Return launches that run a group of steps on the tensors of all slots."""
    translation = translate(runtime, group.inputs, group.steps)
    if isinstance(translation, Declined):
        return translation
    steps, renumbered = translation
    group = _in_precision(group, steps)
    text = _text(group, relaxed(steps) if group.relaxed else steps, renumbered)
    generated: dict[str, str | int | bool] = {
        "PREFETCH_DISTANCE": prefetch_distance(runtime),
        **dict.fromkeys(sorted(text.dialect.headers), 1),
        **({"NUMBERS": text.members(), "UNPACK_NUMBERS": text.unpack("numbers")} if text.numbers else {}),
        "SHARED": "".join(f", {p}" for p in text.parameters),
        **text.body(),
        **_sum_definitions(len(group.sums)),
    }
    ranges = chunk_ranges(runtime, group.operands, slots)
    sums = sums_of_chunks(group, ranges)
    launches: list[Launch] = []
    chunks = 0
    others = 16 * (len(text.parameters) + len(sums.arguments(0)))
    for aligned, part in by_alignment(runtime, slots):
        for batch in batches(runtime, group.operands, part, others):
            sizes = definitions(runtime, group.operands, group.real, slots=batch.slots, aligned=aligned)
            width = int(sizes["GROUP"])
            launches.append(
                runtime.launch(
                    "pointwise/foreach",
                    {**sizes, **generated},
                    {**batch.args, **text.args, **sums.arguments(chunks)},
                    (batch.chunks * width,),
                    (width,),
                    options=[] if group.relaxed else division_options(runtime),
                )
            )
            chunks += batch.chunks
    if sums.workspace:
        launches += [
            sums_of_tensors(runtime, partial, vector, ranges, real=group.real)
            for partial, vector in zip(sums.targets, group.vectors, strict=True)
        ]
    return LaunchSequence(launches, sums.workspace)


def sums_of_tensors(
    runtime: Runtime,
    partial: Tensor | Workspace,
    out: Tensor,
    ranges: Sequence[tuple[int, int]],
    *,
    real: ScalarType = "float",
    root: bool = False,
) -> Launch:
    """Return a launch that adds up the sums of chunks of each tensor; `root` takes the square root of each result."""
    group = 1 if runtime.features.cpu else runtime.features.group_size
    sizes = definitions(runtime, (), real, group=group)
    table = Table(tuple(n for pair in ranges for n in pair))
    return runtime.launch(
        "pointwise/sums_of_tensors",
        {**sizes, "ROOT": root},
        {"partial": partial, "ranges": table, "out": out},
        (len(ranges) * group,),
        (group,),
    )


def _sum_definitions(count: int) -> dict[str, str | int | bool]:
    """Return the definitions of the kernel's sums; the registers t0, t1 ... hold the summed values."""
    if not count:
        return {}
    numbers = range(count)
    parameters = "".join(f", __global REAL *sums{k}, const ulong sums{k}_offset" for k in numbers)
    return {
        "SUM_PARAMETERS": f"{parameters}, const uint first_chunk",
        **{
            f"SUM_{step}": " ".join(f"SUM_{step}_OF({k})" for k in numbers) for step in ("BEGIN", "FULL", "PART", "END")
        },
    }


def _in_precision(group: SlotSteps, steps: Sequence[ExpressionStep]) -> SlotSteps:
    """Return a group whose numbers have the precision in which its steps compute."""
    inputs = scalars_in_precision(group.inputs, steps)
    read = [replace(o, dtype=x.dtype) for o, x in zip(group.operands, inputs[: group.reads], strict=False) if x]
    return replace(group, inputs=tuple(inputs), operands=(*read, *group.operands[group.reads :]))


def _text(group: SlotSteps, steps: Sequence[ExpressionStep], renumbered: Sequence[int]) -> KernelText:
    """Return the generated parts of the kernel, with the arguments that all slots share."""
    text = KernelText()
    specs = group.inputs
    values = [_input(text, group, position, spec) for position, spec in enumerate(specs)]
    first = leading(steps, [i for i in range(group.reads) if group.operands[i].access not in ("single", "number")])
    written = [renumbered[value] for _, value in group.writes]
    kept = [*written, *(renumbered[value] for value in group.sums)]
    within = products_in_sums(steps, len(specs), kept) if group.relaxed else set()
    stored = only_stored(steps, written) - {renumbered[value] for value in group.sums}
    values = evaluate(text, steps[:first], values, within, stored)
    text.locate += text.compute
    text.compute = []
    values = evaluate(text, steps[first:], values, within, stored)
    for (index, _), value in zip(group.writes, written, strict=True):
        operand = group.operands[index]
        target = ElementwiseOperand(group.position(index), operand.dtype, (1,), "contiguous", False)
        text.write(target, cast(text, values[value], operand.dtype))
    for number, summed in enumerate(group.sums):
        wide = dtypes.float64 if group.real == "double" else dtypes.float32
        text.compute.append(f"VEC(REAL) t{number} = {cast(text, values[renumbered[summed]], wide)};")
    return text


def _input(text: KernelText, group: SlotSteps, position: int, spec: InputSpec | None) -> RegisterValue:
    """Load an input into a register; the load is hoisted out of the loop if one value serves all elements."""
    assert spec is not None
    shared = group.shared[position - group.reads] if position >= group.reads else None
    access = group.operands[position].access if shared is None else "single"
    if access == "number":
        return text.number_in_register(position, spec.dtype, f"q{position}")
    if not isinstance(spec, Spec):
        assert isinstance(shared, Scalar)
        value = text.number(position, spec.dtype)
        text.args[f"x{position}"] = shared
        return value
    if access != "single":
        access_of_registers: Access = "contiguous" if access == "elements" else access
        return text.load_operand(ElementwiseOperand(position, spec.dtype, (1,), access_of_registers, spec.aligned))
    if shared is not None:
        text.tensor(ElementwiseOperand(position, spec.dtype, (1,), "broadcast", spec.aligned))
        text.args[f"p{position}"] = shared
        text.locate.append(
            f"__global const STORAGE({spec.dtype.name}) *q{position} = p{position} + p{position}_offset;"
        )
    text.compute.append(
        f"VEC(COMPUTE({spec.dtype.name})) r{position}; LOAD_BROADCAST({spec.dtype.name}, r{position}, q{position})"
    )
    return RegisterValue(f"r{position}", spec.dtype)


LOWERINGS = {"foreach_elementwise": _foreach}
