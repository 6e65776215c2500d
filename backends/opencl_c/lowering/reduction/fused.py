"""Fused groups of pointwise ops, with or without a reduction at the end: one kernel per pattern.

The axes of the inputs' common shape are merged into kept and reduced ones. Vectors run along the innermost reduced axis
where operands are contiguous there (`by_rows`), else along the innermost kept axis. If the results are too few to
occupy the device, each is split, and a second launch reduces the partial results; the split depends only on shapes and
the device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from polyhal.backends.common.codegen.elementwise import ElementwiseOperand, ExpressionStep, lower_fused
from polyhal.backends.common.codegen.expressions import register_class
from polyhal.backends.common.codegen.statements import cast, evaluate
from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import LaunchSequence, ScalarType, Tensor, Workspace
from polyhal.backends.common.launching.split_k import split_count
from polyhal.backends.common.problems.reduction import COMBINE, Operation
from polyhal.backends.opencl_c.dialect import type_name
from polyhal.backends.opencl_c.lowering.pointwise.elementwise import (
    INT32_LIMIT,
    division_options,
    group,
    vector_width,
)
from polyhal.backends.opencl_c.lowering.pointwise.kernel_text import KernelText
from polyhal.backends.opencl_c.lowering.reduction import dispatch
from polyhal.backends.opencl_c.ptx import WHOLE_PROGRAM
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Ref, Spec, broadcast_shapes, broadcast_strides, collapse, contiguous
from polyhal.hal.protocol import Declined, InputSpec, Launch, SimpleLaunch

_BYTES_PER_TENSOR = 40
"""Bytes of kernel parameters: address, offset, and three strides on average."""
_OTHER_BYTES = 128
_SPAN = 4096
"""Elements of the innermost reduced axis that one work-item of a CPU, or one group, reduces at a time."""
_STRIPS = 8
"""Adjacent vectors that a CPU takes from each row when it reduces columns."""
_MIN_SPLIT = 1024
"""Minimum elements of a split that saves more than its second launch costs."""
_IDENTITIES = {"sum": "0", "mean": "0", "max": "-INFINITY", "min": "INFINITY"}


@dataclass(frozen=True, slots=True)
class _Space:
    """Merged axes, the innermost last; `operands` have strides on the kept axes, then on the reduced ones."""

    kept: tuple[int, ...]
    reduced: tuple[int, ...]
    operands: tuple[ElementwiseOperand, ...]
    by_rows: bool

    @property
    def vectors(self) -> int:
        """The length of the axis along which vectors run."""
        return self.reduced[-1] if self.by_rows else self.kept[-1]

    @property
    def outer_kept(self) -> tuple[int, ...]:
        return self.kept if self.by_rows else self.kept[:-1]

    @property
    def outer_reduced(self) -> tuple[int, ...]:
        return self.reduced[:-1] if self.by_rows else self.reduced


def _lay_out(inputs: Sequence[InputSpec | None], axes: tuple[int, ...]) -> _Space:
    tensors = [(i, s) for i, s in enumerate(inputs) if isinstance(s, Spec)]
    shape = broadcast_shapes(*[s.shape for _, s in tensors])
    strides = [broadcast_strides(s.shape, s.strides, shape) for _, s in tensors]
    largest = strides[max(range(len(tensors)), key=lambda i: tensors[i][1].size)]
    kept_axes = [a for a in range(len(shape)) if a not in axes]
    # The order of reduced axes is free: the smallest stride as the last makes runs contiguous.
    reduced_axes = sorted(axes, key=lambda a: -abs(largest[a]))

    def merged(chosen: Sequence[int]) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        return collapse(tuple(shape[a] for a in chosen), tuple(tuple(s[a] for a in chosen) for s in strides))

    kept, kept_strides = merged(kept_axes)
    reduced, reduced_strides = merged(reduced_axes)
    along_rows = sum(s[-1] == 1 for s in reduced_strides)
    along_columns = sum(s[-1] == 1 for s in kept_strides) if kept[-1] > 1 else -1
    by_rows = along_rows >= along_columns
    operands = []
    for (position, spec), over, under in zip(tensors, kept_strides, reduced_strides, strict=True):
        step = (under if by_rows else over)[-1]
        access = "broadcast" if step == 0 else "contiguous" if step == 1 else "strided"
        operands.append(ElementwiseOperand(position, spec.dtype, (*over, *under), access, spec.aligned))  # type: ignore[arg-type]
    return _Space(kept, reduced, tuple(operands), by_rows)


def _reduced_group(
    runtime: Runtime,
    inputs: Sequence[InputSpec | None],
    output: Spec,
    steps: Sequence[ExpressionStep],
    result: int,
    reduction: tuple[Operation, tuple[int, ...]],
) -> Launch | Declined:
    """Build a launch that evaluates `steps` and reduces value `result` over the axes into a contiguous output."""
    operation, axes = reduction
    if not output.dtype.is_floating_point:
        return Declined(f"a reduction in {output.dtype.name}")
    space = _lay_out(inputs, axes)
    sum_dtype = dtypes.accumulator(output.dtype)
    splits, span = _split(runtime, space)
    terms = math.prod(space.reduced)
    scale = 1 / terms if operation == "mean" else 1.0
    first_workspace = len(inputs) + 1
    if splits == 1:
        return _pass(runtime, inputs, output.dtype, steps, result, operation, space, sum_dtype, 1, span, scale, None)
    place = Workspace(first_workspace)
    first = _pass(runtime, inputs, sum_dtype, steps, result, operation, space, sum_dtype, splits, span, scale, place)
    # Partial results are already scaled, so partial results of a mean are summed.
    partial = contiguous(sum_dtype, (splits, output.size))
    join = dispatch.build(
        runtime, "sum" if operation == "mean" else operation, partial, contiguous(output.dtype, (output.size,)), (0,)
    )

    def joined(*args: object) -> None:
        join(Ref(args[first_workspace], partial), *args[len(inputs) : first_workspace], *args[first_workspace + 1 :])

    return LaunchSequence((first, SimpleLaunch(join.name, joined)), (partial.nbytes, *join.workspace))


def _split(runtime: Runtime, space: _Space) -> tuple[int, int]:
    """Return the splits per result, and the span: contiguous elements of a row that are reduced at a time."""
    features = runtime.features
    results = math.prod(space.kept)
    terms = math.prod(space.reduced)
    together = 1 if space.by_rows else _STRIPS * features.vector_width if features.cpu else features.group_size
    workers = (4 if features.cpu else 16 if space.by_rows else 64) * features.compute_units
    busy = ceil_div(results, together)
    splits = split_count(busy, workers, terms // _MIN_SPLIT)
    units = math.prod(space.outer_reduced)
    span = _SPAN
    if space.by_rows:
        span = min(_SPAN, max(_MIN_SPLIT, round_up(ceil_div(terms, splits), _MIN_SPLIT)))
        units *= ceil_div(space.reduced[-1], span)
    return min(splits, units), span


def _pass(
    runtime: Runtime,
    inputs: Sequence[InputSpec | None],
    target: DType,
    steps: Sequence[ExpressionStep],
    result: int,
    operation: Operation,
    space: _Space,
    sum_dtype: DType,
    splits: int,
    span: int,
    scale: float,
    workspace: Workspace | None,
) -> Launch:
    """Return one launch from the inputs to the output, or to `workspace`, which holds the partial results of all splits."""
    features = runtime.features
    reach = max(
        sum(abs(s) * (n - 1) for s, n in zip(o.strides, (*space.kept, *space.reduced), strict=True))
        for o in space.operands
    )
    wide = max(reach, math.prod(space.kept) * max(splits, math.prod(space.reduced))) > INT32_LIMIT
    index: ScalarType = "ulong" if wide else "uint"
    width, aligned = _width(runtime, space)
    size = 1 if features.cpu else features.group_size
    text = KernelText()
    real = type_name(register_class(sum_dtype))
    _emit_pointers(text, space, wide)
    values = evaluate(text, steps, text.inputs(inputs, space.operands))
    text.compute.append(f"const VEC({real}) value = {cast(text, values[result], sum_dtype)};")
    for o in space.operands:
        if o.access == "strided":
            integer: ScalarType = "long" if wide else "int"
            text.constant(f"t{o.position}", integer, o.strides[_vector_axis(space)])
    blocks = ceil_div(space.reduced[-1], span) if space.by_rows else 1
    units = math.prod(space.outer_reduced) * blocks
    strips = _strips(runtime, space, width)
    chunks = 1 if space.by_rows else ceil_div(space.vectors, strips * width)
    items = math.prod(space.outer_kept) * chunks * splits
    numbers = {
        "inner": space.vectors,
        "chunks": chunks,
        "blocks": blocks,
        "span": span,
        "runs": units,
        "runs_each": ceil_div(units, splits),
        "splits": splits,
        "items": items,
    }
    for number, value in numbers.items():
        text.constant(number, index, value)
    text.constant("scale", "double" if real == "double" else "float", scale)
    definitions: dict[str, str | int | bool] = {
        "WIDTH": width,
        "ALIGNED": aligned,
        "INDEX": index,
        "OFFSET": "long" if wide else "int",
        "BY_ROWS": space.by_rows,
        "WHOLE": space.vectors % width == 0,
        "STRIPS": strips,
        "GROUP": size if space.by_rows else 1,
        "REAL": real,
        "OUT_DTYPE": target.name,
        "OPERATION": COMBINE[operation],
        "IDENTITY": _IDENTITIES[operation],
        **dict.fromkeys(sorted(text.dialect.headers), 1),
        **text.signature(),
        "LOCATE_KEPT": "\n".join(text.locate),
        "LOCATE_REDUCED": "\n".join(text.store),
        "REGISTERS": "\n".join(text.registers),
        "LOAD_FULL": "\n".join(text.load),
        "LOAD_PART": "\n".join(text.load_part),
        "COMPUTE_ALL": "\n".join(text.compute),
    }
    args = {**text.args, "out": workspace or Tensor(len(inputs))}
    launched = items * size if space.by_rows else items
    options = division_options(runtime)
    return runtime.launch(
        "reduction/fused", definitions, args, (launched,), (size,), options=options, target=WHOLE_PROGRAM
    )


def _strips(runtime: Runtime, space: _Space, width: int) -> int:
    return _STRIPS if runtime.features.cpu and not space.by_rows and space.vectors >= _STRIPS * width else 1


def _vector_axis(space: _Space) -> int:
    return len(space.kept) + len(space.reduced) - 1 if space.by_rows else len(space.kept) - 1


def _width(runtime: Runtime, space: _Space) -> tuple[int, bool]:
    axis = _vector_axis(space)
    moved = [
        ElementwiseOperand(
            o.position, o.dtype, (*o.strides[:axis], *o.strides[axis + 1 :], o.strides[axis]), o.access, o.aligned
        )
        for o in space.operands
    ]
    return vector_width(runtime.features.vector_width, runtime, space.vectors, moved)


def _emit_pointers(text: KernelText, space: _Space, wide: bool) -> None:
    """Emit pointers to an operand's terms: k<position> for the terms of one result, q<position> for one run."""
    index: ScalarType = "ulong" if wide else "uint"
    integer: ScalarType = "long" if wide else "int"
    kept, reduced, first_reduced = space.outer_kept, space.outer_reduced, len(space.kept)
    for lines, lengths, name, number in ((text.locate, kept, "c", "row"), (text.store, reduced, "d", "run")):
        for axis in range(len(lengths) - 1, 0, -1):
            lines.append(f"const INDEX {name}{axis} = {number} % n{name}{axis}; {number} /= n{name}{axis};")
            text.constant(f"n{name}{axis}", index, lengths[axis])
        lines.append(f"const INDEX {name}0 = {number};")
    for o in space.operands:
        text.tensor(o)
        p = o.position
        kind = f"__global const STORAGE({o.dtype.name}) *"
        over = "".join(f" + (OFFSET)c{a} * s{p}_{a}" for a in range(len(kept)))
        under = "".join(f" + (OFFSET)d{a} * u{p}_{a}" for a in range(len(reduced)))
        text.locate.append(f"{kind}k{p} = p{p} + p{p}_offset{over};")
        text.store.append(f"{kind}q{p} = k{p}{under};")
        for a in range(len(kept)):
            text.constant(f"s{p}_{a}", integer, o.strides[a])
        for a in range(len(reduced)):
            text.constant(f"u{p}_{a}", integer, o.strides[first_reduced + a])


def _most_tensors(runtime: Runtime) -> int:
    return max(2, (runtime.features.parameter_bytes - _OTHER_BYTES) // _BYTES_PER_TENSOR)


LOWERINGS = {"fused_elementwise": lower_fused(group, _most_tensors, _reduced_group)}
