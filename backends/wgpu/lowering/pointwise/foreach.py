"""Groups of elementwise ops on each of many tensors; a launch processes as many tensors as its buffers and parameters hold.

Template: shaders/wgsl/pointwise/foreach.wgsl.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.codegen.elementwise import translate
from polyhal.backends.common.codegen.statements import RegisterValue, cast, evaluate, only_stored
from polyhal.backends.common.launching.launch import Argument, LaunchSequence, Scalar, Table, Tensor, Workspace
from polyhal.backends.common.problems.foreach import leading, products_in_sums, relaxed, slots_of
from polyhal.backends.common.problems.multi_tensor import (
    MultiTensorKernel,
    SlotSteps,
    TensorSlot,
    of_matrices,
    sums_of_chunks,
)
from polyhal.backends.wgpu.lowering.pointwise.elementwise import ElementBody, load_input
from polyhal.backends.wgpu.lowering.pointwise.opaque import with_opaque_operands
from polyhal.backends.wgpu.lowering.support import group_reduce
from polyhal.backends.wgpu.lowering.support.multi_tensor import chunk_ranges, max_elements, over_slots, slots_per_launch
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def _foreach(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    found = slots_of(inputs, outputs, params)
    return found if isinstance(found, Declined) else over_tensors(runtime, *found)


def over_tensors(runtime: Runtime, group: SlotSteps, slots: Sequence[TensorSlot]) -> LaunchSequence | Declined:
    """Return launches that run a group of steps on the tensors of all slots."""
    tensors = [s for s in group.inputs if isinstance(s, Spec)]
    if not all(s.dtype.is_floating_point for s in tensors) or not all(
        o.dtype.is_floating_point for o in group.operands
    ):
        return Declined("tensors, or numbers of each, are not floating point")
    if of_matrices(group.operands) and any(_is_windowed(runtime, group, slot) for slot in slots):
        return Declined("a window of a tensor does not begin with a row")
    translation = translate(runtime, group.inputs, group.steps)
    if isinstance(translation, Declined):
        return translation
    steps, renumbered = translation
    if group.relaxed:
        steps = relaxed(steps)
    else:
        steps, again = with_opaque_operands(steps, len(group.inputs))
        renumbered = [again[value] for value in renumbered]
    body = ElementBody()
    values = [_input(body, group, i, s, runtime.features.int64) for i, s in enumerate(group.inputs)]
    written = [renumbered[value] for _, value in group.writes]
    kept = [*written, *(renumbered[value] for value in group.sums)]
    within = products_in_sums(steps, len(values), kept) if group.relaxed else set()
    stored = only_stored(steps, written) - {renumbered[value] for value in group.sums}
    first = leading(steps, range(group.reads))
    values = evaluate(body, steps[:first], values, within, stored)
    prologue, body.compute = [*body.prepare, *body.compute], []
    values = evaluate(body, steps[first:], values, within, stored)
    arguments: dict[str, Argument] = {
        (f"x{i}" if isinstance(x, Scalar) else f"a{i}"): x for i, x in enumerate(group.shared, group.reads)
    }
    ranges = chunk_ranges(runtime, group.operands, slots)
    sums = sums_of_chunks(group, ranges)
    arguments |= {f"o_{name}": 0 for name, x in sums.arguments(0).items() if isinstance(x, Workspace)}
    arguments |= body.args
    if slots_per_launch(runtime, group.operands, {**arguments, **sums.arguments(0)}, body.more_words) < 1:
        return Declined(f"{len(group.operands)} operands and {len(arguments)} others of a slot do not fit in a launch")
    definitions: dict[str, Any] = {
        "SHARED": [
            {"name": f"a{i}", "dtype": s.dtype.name}
            for i, s in enumerate(group.inputs)
            if i >= group.reads and isinstance(s, Spec)
        ],
        "NUMBERS": ", ".join(body.numbers),
        "PROLOGUE": prologue,
        "COMPUTE": body.compute,
        "READS": [(f"r_a{i}", group.operands[i].name) for i in range(group.reads)],
        "WRITES": [
            (group.operands[index].name, cast(body, values[value], group.operands[index].dtype))
            for (index, _), value in zip(group.writes, written, strict=True)
        ],
        "SUMS": [cast(body, values[value], dtypes.float32) for value in kept[len(written) :]],
    }
    kernel = MultiTensorKernel("foreach", group.operands, definitions)
    filled = [s for s in slots if s.size]
    launches, _ = over_slots(
        runtime,
        "pointwise/foreach",
        kernel,
        filled,
        lambda chunks: {**arguments, **sums.arguments(chunks)},
        more_words=body.more_words,
    )
    if sums.workspace:
        pairs = zip(sums.targets, group.vectors, strict=True)
        launches += [sums_of_tensors(runtime, partial, vector, ranges) for partial, vector in pairs]
    return LaunchSequence(launches, sums.workspace)


def _is_windowed(runtime: Runtime, group: SlotSteps, slot: TensorSlot) -> bool:
    """Return whether a slot is bound in windows."""
    return slot.size > max_elements(runtime, group.operands)


def sums_of_tensors(
    runtime: Runtime, partial: Tensor | Workspace, out: Tensor, ranges: Sequence[tuple[int, int]], root: bool = False
) -> Launch:
    """Return a launch that adds up the sums of chunks of each tensor; `root` takes the square root of each result."""
    size = runtime.features.group_size
    arguments = {"partial": partial, "out": out, "ranges": Table(tuple(n for pair in ranges for n in pair))}
    definitions = {**group_reduce.definitions(runtime, size, size), "ROOT": root}
    return runtime.launch("pointwise/sums_of_tensors", definitions, arguments, len(ranges))


def _input(body: ElementBody, group: SlotSteps, position: int, spec: InputSpec | None, int64: bool) -> RegisterValue:
    if position < group.reads and group.operands[position].access == "number":
        return RegisterValue(f"r_a{position}", dtypes.float32)
    value = load_input(body, position, spec, int64)
    if position >= group.reads:
        shared = group.shared[position - group.reads]
        if isinstance(shared, Scalar):
            body.args[f"x{position}"] = shared
        else:
            body.prepare.append(f"let {value.register} = a{position}_at(p.o_a{position});")
    return value


LOWERINGS = {"foreach_elementwise": _foreach}
