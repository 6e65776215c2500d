"""Reductions in one pass: a lane group or a column of invocations reduces each split of each result.

Kernels: shaders/wgsl/reduction/rows.wgsl and columns.wgsl.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.codegen.expressions import register_class
from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, round_up
from polyhal.backends.common.launching.launch import Arguments, Tensor, Workspace
from polyhal.backends.common.problems.reduction import COMBINE, Axes, Operation, accumulator
from polyhal.backends.wgpu.dialect import convert, type_name
from polyhal.backends.wgpu.lowering.support import group_reduce, term_iterator
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.protocol import Launch

_VECTOR = 4


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor argument, or workspace starting at element `start`."""

    memory: Tensor | Workspace
    dtype: DType
    aligned: bool = True
    start: int = 0

    def bind(self, name: str) -> Arguments:
        """Return the arguments for the buffer `name`."""
        return {name: self.memory} if isinstance(self.memory, Tensor) else {name: self.memory, f"o_{name}": self.start}


@dataclass(frozen=True, slots=True)
class Target:
    """Destination of results: the strides of the two kept axes, and the number of splits of each result."""

    operand: Operand
    strides: tuple[int, int]
    splits: int = 1
    divisor: int = 0
    """Divisor of the final sums; 0 for none."""


def reduce(runtime: Runtime, op: Operation, x: Operand, axes: Axes, target: Target) -> Launch:
    """Return the launch that reduces every split of every result."""
    return (_rows if axes.by_rows else _columns)(runtime, op, x, axes, target)


def partial_dtype(op: Operation, dtype: DType, out: DType) -> DType:
    """Return the dtype of partial results: u32 for conditions, and 32 bits for sums that finally wrap to 32 bits."""
    if op in ("any", "all"):
        return dtypes.uint32
    partial = accumulator(op, dtype)
    return dtypes.int32 if partial.itemsize == 8 and out.itemsize <= 4 else partial


def _definitions(op: Operation, x: Operand, target: Target) -> dict[str, Any]:
    out = target.operand.dtype
    partial = partial_dtype(op, x.dtype, out)
    read = dtypes.bool_ if op in ("any", "all") else partial
    total = "quotient_f32(total, p.divisor)" if target.divisor else "total"
    return {
        "DTYPE": x.dtype.name,
        "OUT_DTYPE": out.name,
        "T": type_name(register_class(partial)),
        "MAP": convert("v", x.dtype, read),
        "RESULT": convert(total, partial, out),
        "OPERATION": COMBINE[op],
    }


def _common_arguments(x: Operand, axes: Axes, target: Target, split_length: int) -> Arguments:
    return {
        **x.bind("x"),
        **target.operand.bind("out"),
        "length": axes.length,
        "splits": target.splits,
        "split_length": split_length,
        "q0": target.strides[0],
        "q1": target.strides[1],
        "divisor": target.divisor or 1,
    }


def has_two_axes(axes: Axes) -> bool:
    """Return whether the reduced terms need two axes."""
    return axes.reduced[0][0] > 1


def iterator_members(axes: Axes, step: int) -> dict[str, int]:
    """Return the arguments of lib/term_iterator.wgsl for steps of `step` terms."""
    (_, outer), (length, inner) = axes.reduced
    return term_iterator.members(length if has_two_axes(axes) else 0, step, {"x": (outer, inner)})


def _rows(runtime: Runtime, op: Operation, x: Operand, axes: Axes, target: Target) -> Launch:
    (k0, k0s), (k1, k1s) = axes.kept
    (_, r0s), (r1, r1s) = axes.reduced
    strides = (k0s, k1s, r0s, r1 if has_two_axes(axes) else 0)
    vectors = x.aligned and r1s == 1 and all(s % _VECTOR == 0 for s in strides)
    width = _VECTOR if vectors and axes.length >= _VECTOR else 1
    tasks = axes.results * target.splits
    lanes = row_lanes(runtime, ceil_div(ceil_div(axes.length, target.splits), width))
    group = group_reduce.group_size(runtime, lanes, tasks)
    definitions = {
        **_definitions(op, x, target),
        **group_reduce.definitions(runtime, lanes, group),
        "WIDTH": width,
        "OUTER": k0 > 1,
        "TWO_AXES": has_two_axes(axes),
        "SPLIT": target.splits > 1,
    }
    split_length = round_up(ceil_div(axes.length, target.splits), width)
    args: Arguments = {
        **_common_arguments(x, axes, target, split_length),
        "tasks": tasks,
        "k1": k1,
        "k0s": k0s,
        "k1s": k1s,
        **iterator_members(axes, lanes * width),
    }
    return runtime.launch("reduction/rows", definitions, args, ceil_div(tasks * lanes, group))


def _columns(runtime: Runtime, op: Operation, x: Operand, axes: Axes, target: Target) -> Launch:
    (k0, k0s), (k1, _) = axes.kept
    width = column_width(x, axes)
    vectors = ceil_div(k1, width)
    group = group_reduce.column_group(runtime, vectors, ceil_div(axes.length, target.splits), width)
    column_blocks = ceil_div(vectors, group.vectors)
    slices = k0 * target.splits
    q0, q1 = target.strides
    out_vectors = target.operand.aligned and target.splits == 1 and q1 == 1 and q0 % _VECTOR == 0
    definitions = {
        **_definitions(op, x, target),
        **group.definitions,
        "WIDTH": width,
        "TWO_AXES": has_two_axes(axes),
        "OUT_WIDTH": _VECTOR if out_vectors and width == _VECTOR else 1,
    }
    args: Arguments = {
        **_common_arguments(x, axes, target, ceil_div(axes.length, target.splits)),
        "column_blocks": column_blocks,
        "slices": slices,
        "k1": k1,
        "k0s": k0s,
        **iterator_members(axes, group.rows),
    }
    return runtime.launch("reduction/columns", definitions, args, column_blocks * slices)


def column_width(x: Operand, axes: Axes) -> int:
    """Return the number of adjacent results per vector in a column reduction."""
    steps = (axes.kept[0][1], axes.reduced[0][1], axes.reduced[1][1], axes.kept[1][0])
    return _VECTOR if x.aligned and all(s % _VECTOR == 0 for s in steps) else 1


def row_lanes(runtime: Runtime, vectors: int) -> int:
    """Return the number of invocations that share a row of `vectors` vectors."""
    if runtime.features.cpu:
        return group_reduce.cpu_lanes(runtime, vectors)
    return min(runtime.features.group_size, power_of_two_at_least(ceil_div(vectors, 4)))
