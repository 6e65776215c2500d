"""Reductions over any axes: along rows, down columns, or whole tensors, in one pass or two.

When there are too few results to fill the device, each is made by several work-items, whose partial results a second pass
joins. The split depends on shapes and device only, so results repeat bit by bit.
"""

from __future__ import annotations

from functools import partial

from polyhal.backends.common.codegen.expressions import register_class
from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems import reduction
from polyhal.backends.common.problems.reduction import COMBINE, Axes, Operation, ReductionBuilders, accumulator
from polyhal.backends.opencl.dialect import convert, type_name
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.pointwise import copy
from polyhal.backends.opencl.lowering.reduction import split
from polyhal.backends.opencl.lowering.reduction.arg import positions
from polyhal.backends.opencl.lowering.support.group_reduce import exchange
from polyhal.backends.opencl.lowering.support.prefetch import prefetch_distance
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

_ROWS_TOGETHER = 8
"""Rows that a work-item of a GPU reads at once, see reduction/columns.cl."""


def _values(runtime: Runtime, op: Operation, x: Spec, axes: Axes, result: Spec) -> Launch:
    held, out = accumulator(op, x.dtype), result.dtype
    parts = split.parts(runtime, axes)
    slices = 1 if axes.by_rows else split.slices(runtime, parts)
    parts = ceil_div(parts, slices)
    make = _rows if axes.by_rows else partial(_columns, slices=slices)
    if parts > 1 and split.few_terms(runtime, axes):
        make, parts = _rows, 1
    if parts == 1:
        return make(runtime, op, x.dtype, x.aligned, axes, out, held, 1, axes.length, (Tensor(0), Tensor(1)))
    first = make(runtime, op, x.dtype, x.aligned, axes, held, held, parts, 0, (Tensor(0), Workspace(2)))
    joined = Axes(((1, 0), (axes.results, parts)), ((1, 0), (parts, 1)))
    second = _rows(runtime, op, held, True, joined, out, held, 1, axes.length, (Workspace(2), Tensor(1)))
    return LaunchSequence(first.name, [first, second], (parts * axes.results * held.itemsize,))


def _definitions(
    op: Operation, source: DType, target: DType, held: DType, divides: bool
) -> dict[str, str | int | bool]:
    mapped = convert("v", source, dtypes.bool_ if op in ("any", "all") else held)
    return {
        "DTYPE": source.name,
        "OUT_DTYPE": target.name,
        "ACCUMULATOR": type_name(register_class(held)),
        "MAP(v)": mapped,
        "OPERATION": COMBINE[op],
        "IDENTITY": _identity(op, held),
        "DIVIDE": divides,
    }


def _identity(op: Operation, held: DType) -> str:
    if op in ("max", "min"):
        if held.kind == "float":
            return "-INFINITY" if op == "max" else "INFINITY"
        limits = {"int32": "INT", "int64": "LONG", "uint32": "UINT", "uint64": "ULONG"}[held.name]
        return f"{limits}_MIN" if op == "max" and held.kind == "int" else "0" if op == "max" else f"{limits}_MAX"
    return {"sum": "0", "mean": "0", "prod": "1", "any": "0", "all": "1"}[op]


def _divisor(total: int, held: DType) -> Constant:
    return Constant(max(total, 1), type_name(register_class(held)))  # type: ignore[arg-type]


def _memory_definitions(operands: tuple[Parameter, Parameter]) -> dict[str, str | int | bool]:
    """Workspace has no offset parameter, tensors have."""
    return {
        "X_IS_WORKSPACE": isinstance(operands[0], Workspace),
        "OUT_IS_WORKSPACE": isinstance(operands[1], Workspace),
    }


def _rows(
    runtime: Runtime, op: Operation, source: DType, aligned: bool, axes: Axes, target: DType, held: DType, parts: int,
    total: int, operands: tuple[Parameter, Parameter],
) -> Launch:  # fmt: skip
    part = ceil_div(axes.length, parts)
    lanes = split.lanes(runtime, part)
    width, whole = split.row_width(runtime, aligned, axes, part // lanes)
    piece = split.row_piece(runtime, axes, parts, width * lanes)
    cpu, tasks = runtime.features.cpu, axes.results * parts
    group = 1 if cpu else split.row_group(runtime, tasks)
    each = split.tasks_each(runtime, tasks, part)
    divides = op == "mean" and total > 0
    definitions = {
        **_definitions(op, source, target, held, divides), **_memory_definitions(operands),
        "WIDTH": width, "ALIGNED": whole, "LANES": lanes, "GROUP": group,
        "EXCHANGE": exchange(runtime, held.itemsize, lanes, group), "SPANS": cpu,
        "PREFETCH_DISTANCE": prefetch_distance(runtime),
    }  # fmt: skip
    numbers = split.geometry(axes, parts, piece)
    parameters = [*operands, *numbers, _divisor(total, held), Constant(each, "ulong")]
    items = ceil_div(tasks, each) * lanes
    return runtime.launch(f"reduce.{op}", "reduction/rows", definitions, parameters, (items,), (group,))


def _columns(
    runtime: Runtime, op: Operation, source: DType, aligned: bool, axes: Axes, target: DType, held: DType, parts: int,
    total: int, operands: tuple[Parameter, Parameter], slices: int,
) -> Launch:  # fmt: skip
    features = runtime.features
    columns = axes.kept[1][0]
    if features.cpu:
        width, whole = next((w for w in (features.vector_width, 4) if columns >= w), 1), False
    else:
        steps = (columns, axes.kept[0][1], axes.reduced[0][1], axes.reduced[1][1])
        width = next((w for w in ((8, 4) if source.itemsize == 2 else (4,)) if all(s % w == 0 for s in steps)), 1)
        width, whole = (width, width > 1) if aligned else (1, False)
    strips = split.STRIPS if features.cpu and columns >= split.STRIPS * width else 1
    chunks = ceil_div(columns, strips * width)
    group = features.group_size if not features.cpu else 1
    divides = op == "mean" and total > 0
    definitions = {
        **_definitions(op, source, target, held, divides), **_memory_definitions(operands),
        "WIDTH": width, "ALIGNED": whole, "STRIPS": strips, "SLICES": slices, "GROUP": group,
    }  # fmt: skip
    piece = ceil_div(axes.length, parts)
    if parts * slices > 1 and not features.cpu:
        piece = round_up(piece, slices * _ROWS_TOGETHER)
    parameters = [*operands, *split.geometry(axes, parts, piece), _divisor(total, held)]
    items = axes.kept[0][0] * chunks * parts
    return runtime.launch(f"reduce.{op}", "reduction/columns", definitions, parameters, (items * slices,), (group,))


_BUILDERS = ReductionBuilders(copy.copy, _values, positions)

LOWERINGS = reduction.lowerings(_BUILDERS)


def build(runtime: Runtime, op: str, x: Spec, out: Spec, axes: tuple[int, ...]) -> Launch:
    """A launch (x, out) for contiguous `out` that holds the kept axes in order. Raises UnsupportedOpError."""
    launch = reduction.build(_BUILDERS, runtime, op, x, out, axes)
    assert not isinstance(launch, Declined), launch.reason
    return launch
