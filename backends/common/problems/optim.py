"""The lowering functions of optimizer steps and gradient scaling, on the kernels of one backend."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Argument, LaunchSequence, ScalarType, Tensor, Workspace
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.multi_tensor import (
    ExtraArguments,
    Inputs,
    LaunchStep,
    MultiTensorBuilders,
    MultiTensorKernel,
    SlotOperand,
    TensorSlot,
    always,
    copy_unless_aliased,
    group_by_dtypes,
    make_contiguous,
    tensors_of,
    too_large,
)
from polyhal.backends.common.problems.optimizer_step import lower_step
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.ops.optim.update_rule import RULES
from polyhal.hal.protocol import Declined, Launch, SimpleLaunch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def lowerings(builders: MultiTensorBuilders) -> dict[str, LoweringFunction]:
    """Return the lowering functions of this family on one backend's kernels."""
    steps: dict[str, Callable[..., Launch | Declined]] = {op: partial(lower_step, rule) for op, rule in RULES.items()}
    of_gradients = {
        "scale_all": _scale_all,
        "unscale_all": _unscale_all,
        "sum_of_squares": _sum_of_squares,
        "norms": _norms,
        "means_along": _means_along,
    }
    functions = {**steps, **{op: _unless_refused(function) for op, function in of_gradients.items()}}
    return {op: _bind(builders, function) for op, function in functions.items()}


def _bind(builders: MultiTensorBuilders, function: Callable[..., Launch | Declined]) -> LoweringFunction:
    def lower(runtime: Any, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
        return function(builders, runtime, inputs, outputs, params)

    return lower


# --- gradients of all parameters ------------------------------------------------------------------------------------


def _refusal(inputs: Inputs) -> str:
    """Return the reason why the kernels do not support these tensors; empty if they do."""
    tensors = tensors_of(inputs)
    if len(tensors) != len(inputs) or too_large(tensors):
        return "a tensor has 2^31 elements or more, or is a number"
    return "" if all(s.dtype.is_floating_point for s in tensors) else "a tensor is not floating point"


def _unless_refused(function: Callable[..., Launch | Declined]) -> Callable[..., Launch | Declined]:
    """Decline tensors that the kernels do not support."""

    def lower(
        builders: MultiTensorBuilders, runtime: Any, inputs: Inputs, outputs: tuple[Spec, ...], params: Params
    ) -> Launch | Declined:
        refusal = _refusal(inputs)
        return Declined(refusal) if refusal else function(builders, runtime, inputs, outputs, params)

    return lower


def _real(dtype: DType) -> ScalarType:
    return "double" if dtype is dtypes.float64 else "float"


def _scale_all(
    builders: MultiTensorBuilders, runtime: Any, inputs: Inputs, outputs: tuple[Spec, ...], params: Params
) -> Launch:
    return _scale(builders, runtime, inputs, outputs)


def _unscale_all(
    builders: MultiTensorBuilders, runtime: Any, inputs: Inputs, outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    if builders.fill is None:
        return Declined("no kernel checks for infinities and NaN")
    *scaled, flag = outputs
    clear = builders.fill(runtime, flag)
    flag_index = len(inputs) + len(scaled)
    launch = _scale(builders, runtime, inputs, tuple(scaled), flag=Tensor(flag_index))
    return LaunchSequence((SimpleLaunch(clear.name, lambda *args: clear(0, args[flag_index])), launch))


def _scale(
    builders: MultiTensorBuilders,
    runtime: Any,
    inputs: Inputs,
    outputs: tuple[Spec, ...],
    flag: Tensor | None = None,
) -> Launch:
    """Multiply the inputs by the last of them; set `flag`, if given, when a product is infinite or NaN."""
    count = len(outputs)
    factor = tensors_of(inputs)[-1]
    steps: list[LaunchStep] = [
        copy_unless_aliased(builders.copy, runtime, [(i, i) for i in range(count)], inputs, outputs)
    ]
    extra: dict[str, Argument] = {"factor": Tensor(count)}
    for (dtype,), members in group_by_dtypes([(s.dtype,) for s in outputs]).items():
        definitions: dict[str, str | bool] = {"DTYPE": dtype.name, "FACTOR_DTYPE": factor.dtype.name}
        if flag is not None:
            definitions["CHECK"] = True
            extra["flag"] = flag
        kernel = MultiTensorKernel("scale_all", (SlotOperand("x", dtype),), definitions, _real(dtype))
        slots = [TensorSlot((Tensor(len(inputs) + i),), outputs[i].size, outputs[i].aligned) for i in members]
        steps += builders.over_slots(runtime, kernel, slots, always(extra))[0]
    return LaunchSequence(steps)


def _partial_sums(partial: Workspace, before: int) -> ExtraArguments:
    """Return the arguments of a launch that writes its partial sums after the `before` sums of earlier kernels."""
    return lambda chunks: {"partial": partial, "first": before + chunks}


@dataclass(frozen=True, slots=True)
class _Squares:
    """Launches that write the sums of squares of the tensors' chunks to the first workspace."""

    steps: list[LaunchStep]
    partial: Workspace
    workspace: tuple[int, ...]
    chunks: int
    ranges: list[tuple[int, int]]
    """First chunk and number of chunks of each tensor, if the backend provides `chunk_ranges`."""


def _squares(builders: MultiTensorBuilders, runtime: Any, inputs: Inputs) -> _Squares:
    tensors = tensors_of(inputs)
    # The first workspace holds the partial sums.
    partial = Workspace(len(inputs) + 1)
    contiguous = make_contiguous(builders, runtime, dict(enumerate(tensors)), partial.index + 1)
    steps: list[LaunchStep] = list(contiguous.copies)
    chunks, ranges = 0, [(0, 0)] * len(tensors)
    for (dtype,), members in group_by_dtypes([(s.dtype,) for s in tensors]).items():
        operand = SlotOperand("x", dtype, read_only=True)
        kernel = MultiTensorKernel("squares_of_chunks", (operand,), {"DTYPE": dtype.name}, _real(dtype))
        slots = [_slot(contiguous.arguments[i], tensors[i]) for i in members]
        if builders.chunk_ranges is not None:
            for i, (first, count) in zip(members, builders.chunk_ranges(runtime, (operand,), slots), strict=True):
                ranges[i] = (chunks + first, count)
        launches, launch_chunks = builders.over_slots(runtime, kernel, slots, _partial_sums(partial, chunks))
        steps += launches
        chunks += launch_chunks
    return _Squares(steps, partial, (chunks * 4, *contiguous.workspace), chunks, ranges)


def _sum_of_squares(
    builders: MultiTensorBuilders, runtime: Any, inputs: Inputs, outputs: tuple[Spec, ...], params: Params
) -> Launch:
    squares = _squares(builders, runtime, inputs)
    total = builders.total(runtime, squares.partial, Tensor(len(inputs)), squares.chunks)
    return LaunchSequence([*squares.steps, total], squares.workspace)


def _norms(
    builders: MultiTensorBuilders, runtime: Any, inputs: Inputs, outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    if builders.norms is None:
        return Declined("no kernel sums the chunks of each tensor")
    squares = _squares(builders, runtime, inputs)
    roots = builders.norms(runtime, squares.partial, Tensor(len(inputs)), squares.ranges)
    return LaunchSequence([*squares.steps, roots], squares.workspace)


_LARGEST_MEAN = 1 << 18
"""Maximum elements of a tensor whose means are computed together with others: large ones fill the device by themselves."""


def _means_along(
    builders: MultiTensorBuilders, runtime: Any, inputs: Inputs, outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    tensors = tensors_of(inputs)
    if builders.means is None or any(s.size > _LARGEST_MEAN for s in tensors):
        return Declined("no kernel reduces many tensors, or one is large")
    dense = make_contiguous(builders, runtime, dict(enumerate(tensors)), len(inputs) + len(outputs))
    steps: list[LaunchStep] = list(dense.copies)
    for (dtype, wide), members in group_by_dtypes(
        [(x.dtype, o.dtype) for x, o in zip(tensors, outputs, strict=True)]
    ).items():
        operands = SlotOperand("x", dtype, read_only=True), SlotOperand("out", wide, access="rows")
        definitions: dict[str, str | bool] = {
            "DTYPE": dtype.name,
            "RESULT_DTYPE": wide.name,
            "SQUARE": bool(params["square"]),
        }
        slots = []
        for i in members:
            shape, axis = tensors[i].shape, params["axes"][i]
            arguments = dense.arguments[i], Tensor(len(inputs) + i)
            inner = math.prod(shape[axis:]) // shape[axis]
            slots.append(TensorSlot(arguments, tensors[i].size, False, shape[axis], inner))
        steps += builders.means(runtime, MultiTensorKernel("means_along", operands, definitions, _real(wide)), slots)
    return LaunchSequence(steps, dense.workspace)


def mean_tasks(slot: TensorSlot, chunk: int, strip: int) -> int:
    """Return the number of groups for a slot's means: lines of `rows` elements, or strips of at least `strip` columns."""
    if slot.columns == 1:
        return ceil_div(slot.size // slot.rows, max(1, chunk // slot.rows))
    width = max(strip, chunk // slot.rows // strip * strip)
    return slot.size // (slot.rows * slot.columns) * ceil_div(slot.columns, width)


def _slot(argument: Tensor | Workspace, spec: Spec) -> TensorSlot:
    return TensorSlot((argument,), spec.size, spec.aligned or isinstance(argument, Workspace))
