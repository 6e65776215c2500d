"""Reductions over any axes: along rows, down columns, or whole tensors, in one pass or two.

If the results are too few to occupy the device, several work-items share each one (split-K), and a second pass reduces
their partial results. The split depends only on shapes and the device, so results are bitwise reproducible.
"""

from __future__ import annotations

from functools import partial

from polyhal.backends.common.codegen.expressions import register_class
from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems import reduction
from polyhal.backends.common.problems.reduction import COMBINE, Axes, Operation, ReductionBuilders, accumulator
from polyhal.backends.opencl_c.dialect import convert, type_name
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.lowering.reduction import split
from polyhal.backends.opencl_c.lowering.reduction.arg import positions
from polyhal.backends.opencl_c.lowering.support.group_reduce import exchange
from polyhal.backends.opencl_c.lowering.support.prefetch import prefetch_distance
from polyhal.backends.opencl_c.ptx import WHOLE_PROGRAM
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

_ROWS_IN_FLIGHT = 8
"""Rows that a work-item of a GPU reads at once, UNROLL of reduction/columns.cl."""

Memory = Tensor | Workspace


def _values(runtime: Runtime, op: Operation, x: Spec, axes: Axes, result: Spec) -> Launch:
    sum_dtype, out = accumulator(op, x.dtype), result.dtype
    splits = split.split_terms(runtime, axes)
    slices = 1 if axes.by_rows else split.slices(runtime, splits)
    splits = ceil_div(splits, slices)
    build_pass = _rows if axes.by_rows else partial(_columns, slices=slices)
    if splits > 1 and split.few_terms(runtime, axes):
        build_pass, splits = _rows, 1
    if splits == 1:
        return build_pass(runtime, op, x.dtype, x.aligned, axes, out, sum_dtype, 1, axes.length, (Tensor(0), Tensor(1)))
    first = build_pass(
        runtime, op, x.dtype, x.aligned, axes, sum_dtype, sum_dtype, splits, 0, (Tensor(0), Workspace(2))
    )
    partials = Axes(((1, 0), (axes.results, splits)), ((1, 0), (splits, 1)))
    second = _rows(runtime, op, sum_dtype, True, partials, out, sum_dtype, 1, axes.length, (Workspace(2), Tensor(1)))
    return LaunchSequence([first, second], (splits * axes.results * sum_dtype.itemsize,))


def _definitions(
    op: Operation, source: DType, target: DType, sum_dtype: DType, divides: bool
) -> dict[str, str | int | bool]:
    mapped = convert("v", source, dtypes.bool_ if op in ("any", "all") else sum_dtype)
    return {
        "DTYPE": source.name,
        "OUT_DTYPE": target.name,
        "ACCUMULATOR": type_name(register_class(sum_dtype)),
        "MAP(v)": mapped,
        "OPERATION": COMBINE[op],
        "IDENTITY": identity(op, sum_dtype),
        "DIVIDE": divides,
    }


def identity(op: Operation, sum_dtype: DType) -> str:
    """Return the text of the reduction's neutral element."""
    if op in ("max", "min"):
        if sum_dtype.kind == "float":
            return "-INFINITY" if op == "max" else "INFINITY"
        limits = {"int32": "INT", "int64": "LONG", "uint32": "UINT", "uint64": "ULONG"}[sum_dtype.name]
        return f"{limits}_MIN" if op == "max" and sum_dtype.kind == "int" else "0" if op == "max" else f"{limits}_MAX"
    return {"sum": "0", "mean": "0", "prod": "1", "any": "0", "all": "1"}[op]


def _rows(
    runtime: Runtime,
    op: Operation,
    source: DType,
    aligned: bool,
    axes: Axes,
    target: DType,
    sum_dtype: DType,
    splits: int,
    total: int,
    memory: tuple[Memory, Memory],
) -> Launch:
    terms = ceil_div(axes.length, splits)
    lanes = split.lanes(runtime, terms)
    width, whole = split.row_width(runtime, aligned, axes, terms // lanes)
    cpu, tasks = runtime.features.cpu, axes.results * splits
    group = 1 if cpu else split.row_group(runtime, tasks)
    each = split.tasks_each(runtime, tasks, terms)
    divides = op == "mean" and total > 0
    definitions = {
        **_definitions(op, source, target, sum_dtype, divides),
        "WIDTH": width,
        "ALIGNED": whole,
        "LANES": lanes,
        "GROUP": group,
        "EXCHANGE": exchange(runtime, sum_dtype.itemsize, lanes, group),
        "TASKS_IN_TURN": cpu,
        "STREAMS": split.streams(runtime, axes, width, terms, source.itemsize),
        "PREFETCH_DISTANCE": prefetch_distance(runtime),
    }
    args = {
        "x": memory[0],
        "out": memory[1],
        "divisor": total if divides else 1,
        "tasks_each": each,
        **split.geometry(axes, splits, split.row_chunk(runtime, axes, splits, width * lanes)),
    }
    items = ceil_div(tasks, each) * lanes
    return runtime.launch("reduction/rows", definitions, args, (items,), (group,), target=WHOLE_PROGRAM)


def _columns(
    runtime: Runtime,
    op: Operation,
    source: DType,
    aligned: bool,
    axes: Axes,
    target: DType,
    sum_dtype: DType,
    splits: int,
    total: int,
    memory: tuple[Memory, Memory],
    slices: int,
) -> Launch:
    features = runtime.features
    columns = axes.kept[1][0]
    if features.cpu:
        width, whole = next((w for w in (features.vector_width, 4) if columns >= w), 1), False
    else:
        distances = (columns, axes.kept[0][1], axes.reduced[0][1], axes.reduced[1][1])
        width = next((w for w in ((8, 4) if source.itemsize == 2 else (4,)) if all(d % w == 0 for d in distances)), 1)
        width, whole = (width, width > 1) if aligned else (1, False)
    strips = split.STRIPS if features.cpu and columns >= split.STRIPS * width else 1
    group = features.group_size if not features.cpu else 1
    divides = op == "mean" and total > 0
    definitions = {
        **_definitions(op, source, target, sum_dtype, divides),
        "WIDTH": width,
        "ALIGNED": whole,
        "STRIPS": strips,
        "SLICES": slices,
        "GROUP": group,
    }
    chunk = ceil_div(axes.length, splits)
    if splits * slices > 1 and not features.cpu:
        chunk = round_up(chunk, slices * _ROWS_IN_FLIGHT)
    args = {"x": memory[0], "out": memory[1], "divisor": total if divides else 1, **split.geometry(axes, splits, chunk)}
    items = axes.kept[0][0] * ceil_div(columns, strips * width) * splits
    return runtime.launch("reduction/columns", definitions, args, (items * slices,), (group,), target=WHOLE_PROGRAM)


_BUILDERS = ReductionBuilders(copy.copy, _values, positions)

LOWERINGS = reduction.lowerings(_BUILDERS)


def build(runtime: Runtime, op: str, x: Spec, out: Spec, axes: tuple[int, ...]) -> Launch:
    """Build a launch (x, out) for contiguous `out` that holds the kept axes in order. Raises UnsupportedOpError."""
    launch = reduction.build(_BUILDERS, runtime, op, x, out, axes)
    assert not isinstance(launch, Declined), launch.reason
    return launch
