"""Reductions in one pass: each part of each result by one team of invocations, along rows or down columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.codegen.expressions import register_class
from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, round_up
from polyhal.backends.common.launching.launch import Constant, Tensor, Workspace
from polyhal.backends.common.problems.reduction import COMBINE, Axes, Operation, accumulator
from polyhal.backends.wgpu.dialect import convert, type_name
from polyhal.backends.wgpu.launch import DispatchLaunch, Parameter
from polyhal.backends.wgpu.lowering.support import group_reduce, runs
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType

_VECTOR = 4


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor argument, or workspace from element `start` on."""

    memory: Tensor | Workspace
    dtype: DType
    aligned: bool = True
    start: int = 0

    @property
    def parameters(self) -> list[Parameter]:
        if isinstance(self.memory, Tensor):
            return [self.memory]
        return [self.memory, Constant(self.start, "uint")]


@dataclass(frozen=True, slots=True)
class Target:
    """Where results go: the steps of the two kept axes, and in how many parts each result is made."""

    operand: Operand
    steps: tuple[int, int]
    parts: int = 1
    divisor: int = 0
    """What sums are divided by at the end; 0 for nothing."""


def one_pass(runtime: Runtime, op: Operation, x: Operand, axes: Axes, target: Target) -> DispatchLaunch:
    """Every part of every result by one team of invocations."""
    return (_rows if axes.by_rows else _columns)(runtime, op, x, axes, target)


def held_dtype(op: Operation, dtype: DType, out: DType) -> DType:
    """The dtype of partial results: conditions are u32, and sums that wrap to 32 bits anyway need no more."""
    if op in ("any", "all"):
        return dtypes.uint32
    held = accumulator(op, dtype)
    return dtypes.int32 if held.itemsize == 8 and out.itemsize <= 4 else held


def _definitions(op: Operation, x: Operand, target: Target) -> dict[str, Any]:
    out = target.operand.dtype
    held = held_dtype(op, x.dtype, out)
    read = dtypes.bool_ if op in ("any", "all") else held
    total = "quotient_f32(total, p.divisor)" if target.divisor else "total"
    return {
        "DTYPE": x.dtype.name,
        "OUT_DTYPE": out.name,
        "T": type_name(register_class(held)),
        "MAP": convert("v", x.dtype, read),
        "RESULT": convert(total, held, out),
        "OPERATION": COMBINE[op],
    }


def _last_parameters(axes: Axes, target: Target, part_length: int) -> list[Parameter]:
    numbers = (axes.length, target.parts, part_length, *target.steps)
    return [*(Constant(n, "uint") for n in numbers), Constant(float(target.divisor or 1), "float")]


def uints(*values: int) -> list[Parameter]:
    """Unsigned numbers of 32 bits; negative steps wrap."""
    return [Constant(v, "uint") for v in values]


def in_runs(axes: Axes) -> bool:
    """Whether the terms of a result are in more than one run."""
    return axes.reduced[0][0] > 1


def walk(axes: Axes, step: int) -> list[Parameter]:
    """The numbers of lib/runs.wgsl for terms walked `step` at a time."""
    (_, outer), (length, inner) = axes.reduced
    return runs.members(length if in_runs(axes) else 0, step, (outer, inner))


def _rows(runtime: Runtime, op: Operation, x: Operand, axes: Axes, target: Target) -> DispatchLaunch:
    (k0, k0s), (k1, k1s) = axes.kept
    (_, r0s), (r1, r1s) = axes.reduced
    whole = x.aligned and r1s == 1 and all(s % _VECTOR == 0 for s in (k0s, k1s, r0s, r1 if in_runs(axes) else 0))
    width = _VECTOR if whole and axes.length >= _VECTOR else 1
    tasks = axes.results * target.parts
    lanes = row_lanes(runtime, ceil_div(ceil_div(axes.length, target.parts), width))
    group = group_reduce.group_size(runtime, lanes, tasks)
    definitions = {
        **_definitions(op, x, target), **group_reduce.definitions(runtime, lanes, group), "WIDTH": width, "OUTER": k0 > 1,
        "RUNS": in_runs(axes), "SPLIT": target.parts > 1,
    }  # fmt: skip
    part_length = round_up(ceil_div(axes.length, target.parts), width)
    parameters = [
        *x.parameters, *target.operand.parameters, *uints(tasks, k1, k0s, k1s), *walk(axes, lanes * width),
        *_last_parameters(axes, target, part_length),
    ]  # fmt: skip
    return runtime.launch(f"reduce.{op}", "reduction/rows", definitions, parameters, ceil_div(tasks * lanes, group))


def _columns(runtime: Runtime, op: Operation, x: Operand, axes: Axes, target: Target) -> DispatchLaunch:
    (k0, k0s), (k1, _) = axes.kept
    width = column_width(x, axes)
    vectors = ceil_div(k1, width)
    block = group_reduce.block(runtime, vectors, ceil_div(axes.length, target.parts))
    blocks = ceil_div(vectors, block.vectors)
    slabs = k0 * target.parts
    q0, q1 = target.steps
    whole = target.operand.aligned and target.parts == 1 and q1 == 1 and q0 % _VECTOR == 0
    definitions = {
        **_definitions(op, x, target), **block.definitions, "WIDTH": width, "RUNS": in_runs(axes),
        "OUT_WIDTH": _VECTOR if whole and width == _VECTOR else 1,
    }  # fmt: skip
    parameters = [
        *x.parameters, *target.operand.parameters, *uints(blocks, slabs, k1, k0s), *walk(axes, block.tall),
        *_last_parameters(axes, target, ceil_div(axes.length, target.parts)),
    ]  # fmt: skip
    return runtime.launch(f"reduce.{op}", "reduction/columns", definitions, parameters, blocks * slabs)


def column_width(x: Operand, axes: Axes) -> int:
    """Results that an invocation takes side by side."""
    steps = (axes.kept[0][1], axes.reduced[0][1], axes.reduced[1][1], axes.kept[1][0])
    return _VECTOR if x.aligned and all(s % _VECTOR == 0 for s in steps) else 1


def row_lanes(runtime: Runtime, vectors: int) -> int:
    """Invocations that share a row."""
    if runtime.features.cpu:
        return group_reduce.cpu_lanes(runtime, vectors)
    return min(runtime.features.group_size, power_of_two_at_least(ceil_div(vectors, 4)))
