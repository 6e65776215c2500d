"""Elementwise ops, single or fused, over operands of any layout: one generated kernel per pattern.

A pattern consists of the steps, the dtypes, the number of axes after merging and, per operand, its access along the
innermost axis. Shapes, strides and offsets are arguments, so one program serves every size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from polyhal.backends.common.codegen.elementwise import ElementwiseOperand, ExpressionStep, lowerings, merge_axes
from polyhal.backends.common.codegen.statements import RegisterValue, cast, evaluate, only_stored
from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import ScalarType
from polyhal.backends.opencl_c.lowering.pointwise.kernel_text import KernelText
from polyhal.backends.opencl_c.lowering.support.prefetch import prefetch_distance
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.core.kernels.tuning import Family, magnitude
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import InputSpec, Launch

INT32_LIMIT = 2**31 - 1
_MIN_CHUNKS = 64
"""Minimum chunks per work-item of a CPU: with fewer, the start of the work-item dominates."""
_ITEMS_PER_UNIT = 64
"""Work-items per compute unit of a CPU: enough to balance threads of different speed."""


@dataclass(frozen=True, slots=True)
class Streaming:
    """How elements are distributed over work-items."""

    group: int
    """Work-items per group; 1 on CPUs, where each takes a run of chunks."""
    vector: int
    """Elements of four bytes per work-item, for rows of sufficient length."""


STREAMING = Family[Streaming](
    "elementwise",
    {"group": (16, 32, 64, 128, 256, 512), "vector": (4, 8, 16)},
    lambda features, choice: (
        choice.group <= (1 if features.cpu else features.max_group_size) and choice.vector in (1, 2, 4, 8, 16)
    ),
)


@dataclass(frozen=True, slots=True)
class _Space:
    """The iteration space."""

    axes: tuple[int, ...]
    """Lengths of the merged axes, innermost last."""
    width: int
    """Elements of a chunk, the unit that a work-item computes at a time."""
    aligned: bool
    """True if every chunk starts at a multiple of its size in memory."""
    wide: bool
    """True if indices need 64 bits."""
    operands: tuple[ElementwiseOperand, ...]

    @property
    def chunks(self) -> int:
        return ceil_div(self.axes[-1], self.width)

    @property
    def items(self) -> int:
        return math.prod(self.axes[:-1]) * self.chunks


def group(
    runtime: Runtime,
    inputs: Sequence[InputSpec | None],
    outputs: Sequence[Spec],
    steps: Sequence[ExpressionStep],
    results: Sequence[int],
) -> Launch:
    """Build a launch that evaluates `steps` and writes value `results[i]` to output i.

    All outputs have the same shape, to which inputs broadcast, and any strides; absent inputs are None. An output may
    alias an input of the same layout. Raises KernelBuildError.
    """
    cpu = runtime.features.cpu
    default = Streaming(1 if cpu else runtime.features.group_size, runtime.features.vector_width)
    choice = runtime.tuning.choose(STREAMING, magnitude(math.prod(outputs[0].shape)), default)
    space = _iteration_space(choice.vector, runtime, inputs, outputs)
    text = KernelText()
    values = evaluate(text, steps, _emit_operands(text, space, inputs), stored=only_stored(steps, results))
    _emit_results(text, space, [values[i] for i in results], outputs)
    index: ScalarType = "ulong" if space.wide else "uint"
    each = max(_MIN_CHUNKS, ceil_div(space.items, _ITEMS_PER_UNIT * runtime.features.compute_units)) if cpu else 1
    sizes = {"inner": space.axes[-1], "chunks": space.chunks, "items": space.items, "each": each}
    for member, value in sizes.items():
        text.constant(member, index, value)
    definitions: dict[str, str | int | bool] = {
        "WIDTH": space.width,
        "ALIGNED": space.aligned,
        "FLAT": len(space.axes) == 1,
        "SPANS": cpu,
        "PREFETCH_DISTANCE": prefetch_distance(runtime),
        "SHORT_RESULTS": runtime.features.tensor_cores and _is_short([*inputs, *outputs]),
        "INDEX": index,
        "OFFSET": "long" if space.wide else "int",
        **dict.fromkeys(sorted(text.dialect.headers), 1),
        **text.signature(),
        **text.body(),
    }
    return runtime.launch(
        "pointwise/elementwise",
        definitions,
        text.args,
        (ceil_div(space.items, each),),
        (choice.group,),
        options=division_options(runtime),
    )


def _is_short(values: Sequence[InputSpec | None]) -> bool:
    """Return whether all numbers are rounded to 16 bits."""
    return all(s.dtype in (dtypes.float16, dtypes.bfloat16) for s in values if isinstance(s, Spec))


def division_options(runtime: Runtime) -> list[str]:
    """Return the build options for correctly rounded division and square root (IEEE 754), if the device supports it."""
    return ["-cl-fp32-correctly-rounded-divide-sqrt"] if runtime.features.correct_divide else []


def _iteration_space(
    vector: int, runtime: Runtime, inputs: Sequence[InputSpec | None], outputs: Sequence[Spec]
) -> _Space:
    axes, operands = merge_axes(inputs, outputs)
    # A short tensor could use narrower vectors, but compiling a further program would cost more than that saves.
    inner = max(axes[-1], vector) if runtime.features.cpu and len(axes) == 1 else axes[-1]
    width, aligned = vector_width(vector, runtime, inner, operands)
    wide = max(*[o.span(axes) for o in operands], math.prod(axes) + 2 * width) > INT32_LIMIT
    return _Space(axes, width, aligned, wide, operands)


def vector_width(vector: int, runtime: Runtime, inner: int, operands: Sequence[ElementwiseOperand]) -> tuple[int, bool]:
    """Return the elements of the innermost axis, of length `inner`, per chunk, and whether all chunks are aligned.

    CPUs load unaligned and gathered vectors at little cost. GPUs gain from vectors only if they are aligned; otherwise
    neighbouring work-items should access neighbouring elements.
    """
    itemsize = max(o.dtype.itemsize for o in operands)
    if runtime.features.cpu:
        full = vector if itemsize <= 4 else max(2, vector // 2)
        return next((w for w in (full, 4) if inner >= w), 1), False
    full = max(2, min(2 * vector, 4 * vector // itemsize, 16))
    whole = all(o.access == "broadcast" or o.vectorizable(full) for o in operands)
    return (full, True) if whole and inner >= full else (1, False)


def _emit_operands(text: KernelText, space: _Space, inputs: Sequence[InputSpec | None]) -> list[RegisterValue]:
    outer = len(space.axes) - 1
    integer: ScalarType = "long" if space.wide else "int"
    for axis in range(outer - 1, 0, -1):
        text.locate.append(f"const INDEX c{axis} = row % n{axis}; row /= n{axis};")
    if outer:
        text.locate.append("const INDEX c0 = row;")
    for o in space.operands:
        const = "const " if o.position < len(inputs) else ""
        text.tensor(o, const)
        terms = "".join(f" + (OFFSET)c{a} * s{o.position}_{a}" for a in range(outer))
        text.locate.append(
            f"__global {const}STORAGE({o.dtype.name}) *q{o.position} = p{o.position} + p{o.position}_offset{terms};"
        )
    values = text.inputs(inputs, space.operands)
    for axis in range(1, outer):
        text.constant(f"n{axis}", "ulong" if space.wide else "uint", space.axes[axis])
    for o in space.operands:
        for axis in range(outer):
            text.constant(f"s{o.position}_{axis}", integer, o.strides[axis])
        if o.access == "strided":
            text.constant(f"t{o.position}", integer, o.strides[-1])
    return values


def _emit_results(text: KernelText, space: _Space, results: Sequence[RegisterValue], outputs: Sequence[Spec]) -> None:
    targets = space.operands[len(space.operands) - len(outputs) :]
    for value, operand in zip(results, targets, strict=True):
        text.write(operand, cast(text, value, operand.dtype))


LOWERINGS = lowerings(group)
