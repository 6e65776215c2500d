"""Reductions over any axes: along rows, down columns, or whole tensors, in one pass or two.

When there are too few results to fill the device, each is made by several work-items, whose partial results a second pass
joins. The split depends on shapes and device only, so results repeat bit by bit.
"""

from __future__ import annotations

from polyhal.backends.common import reductions
from polyhal.backends.common.expressions import register_class
from polyhal.backends.common.geometry import ceil_div, power_of_two_at_least, round_up
from polyhal.backends.common.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.reductions import JOINS, Axes, Makers, Operation, accumulator
from polyhal.backends.opencl.dialect import convert, type_name
from polyhal.backends.opencl.launch import KernelLaunch, Parameter
from polyhal.backends.opencl.lowering import movement
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

_STRIPS = 8
"""Vectors side by side that a CPU takes from each row when it reduces columns."""

_SHORTEST_PART = 1024
"""Elements below which a second pass costs more than it wins."""


def _values(runtime: Runtime, op: Operation, x: Spec, axes: Axes, result: Spec) -> Launch:
    make = _rows if axes.by_rows else _columns
    held, out = accumulator(op, x.dtype), result.dtype
    parts = _parts(runtime, axes)
    if parts == 1:
        return make(runtime, op, x.dtype, x.aligned, axes, out, held, 1, axes.length, (Tensor(0), Tensor(1)))
    first = make(runtime, op, x.dtype, x.aligned, axes, held, held, parts, 0, (Tensor(0), Workspace(2)))
    joined = Axes(((1, 0), (axes.results, parts)), ((1, 0), (parts, 1)))
    second = _rows(runtime, op, held, True, joined, out, held, 1, axes.length, (Workspace(2), Tensor(1)))
    return LaunchSequence(first.name, [first, second], (parts * axes.results * held.itemsize,))


def _parts(runtime: Runtime, axes: Axes) -> int:
    features = runtime.features
    if features.cpu:
        workers = 4 * features.compute_units
        busy = axes.results if axes.by_rows else ceil_div(axes.results, _STRIPS * features.vector_width)
    else:
        workers = 128 * features.compute_units
        busy = (
            ceil_div(axes.results * _lanes(runtime, axes.length), 256) if axes.by_rows else ceil_div(axes.results, 256)
        )
    return max(1, min(workers // max(busy, 1), axes.length // _SHORTEST_PART, 16384))


def _lanes(runtime: Runtime, length: int) -> int:
    """Work-items that share one row."""
    if runtime.features.cpu:
        return 1
    return min(runtime.features.group_size, power_of_two_at_least(ceil_div(length, 4)))


def _definitions(
    op: Operation, source: DType, target: DType, held: DType, divides: bool
) -> dict[str, str | int | bool]:
    mapped = convert("v", source, dtypes.bool_ if op in ("any", "all") else held)
    return {
        "DTYPE": source.name,
        "OUT_DTYPE": target.name,
        "ACCUMULATOR": type_name(register_class(held)),
        "MAP(v)": mapped,
        "OPERATION": JOINS[op],
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


def _geometry(axes: Axes, parts: int, part_length: int, divisor: int, held: DType) -> list[Parameter]:
    (k0, k0s), (k1, k1s) = axes.kept
    (_, r0s), (r1, r1s) = axes.reduced
    return [
        Constant(k0, "ulong"), Constant(k0s, "long"), Constant(k1, "ulong"), Constant(k1s, "long"),
        Constant(r0s, "long"), Constant(r1, "ulong"), Constant(r1s, "long"),
        Constant(axes.length, "ulong"), Constant(parts, "ulong"), Constant(part_length, "ulong"),
        Constant(divisor, type_name(register_class(held))),  # type: ignore[arg-type]
    ]  # fmt: skip


def _memory_definitions(operands: tuple[Parameter, Parameter]) -> dict[str, str | int | bool]:
    """Workspace has no offset parameter, tensors have."""
    return {
        "X_IS_WORKSPACE": isinstance(operands[0], Workspace),
        "OUT_IS_WORKSPACE": isinstance(operands[1], Workspace),
    }


def _rows(
    runtime: Runtime, op: Operation, source: DType, aligned: bool, axes: Axes, target: DType, held: DType, parts: int,
    total: int, operands: tuple[Parameter, Parameter],
) -> KernelLaunch:  # fmt: skip
    features = runtime.features
    lanes = _lanes(runtime, ceil_div(axes.length, parts))
    unit = axes.reduced[1][1] == 1
    if features.cpu:
        width, whole = (features.vector_width if unit and axes.reduced[1][0] >= features.vector_width else 1), False
    else:
        steps = (axes.kept[0][1], axes.kept[1][1], axes.reduced[0][1], axes.reduced[1][0])
        whole = unit and aligned and all(s % 4 == 0 for s in steps) and ceil_div(axes.length, parts) >= 4 * lanes
        width = 4 if whole else 1
    part_length = round_up(ceil_div(axes.length, parts), width * lanes)
    group = features.group_size if not features.cpu else 64 if axes.results * parts >= 8192 else 1
    divides = op == "mean" and total > 0
    definitions = {
        **_definitions(op, source, target, held, divides), **_memory_definitions(operands),
        "WIDTH": width, "ALIGNED": whole, "LANES": lanes, "GROUP": group,
    }  # fmt: skip
    parameters = [*operands, *_geometry(axes, parts, part_length, max(total, 1), held)]
    return runtime.launch(
        f"reduce.{op}", "reduce_rows", definitions, parameters, (axes.results * parts * lanes,), (group,)
    )


def _columns(
    runtime: Runtime, op: Operation, source: DType, aligned: bool, axes: Axes, target: DType, held: DType, parts: int,
    total: int, operands: tuple[Parameter, Parameter],
) -> KernelLaunch:  # fmt: skip
    features = runtime.features
    columns = axes.kept[1][0]
    if features.cpu:
        width, whole = next((w for w in (features.vector_width, 4) if columns >= w), 1), False
    else:
        steps = (axes.kept[0][1], axes.reduced[0][1], axes.reduced[1][1])
        whole = aligned and columns % 4 == 0 and all(s % 4 == 0 for s in steps) and axes.results >= 2**16
        width = 4 if whole else 1
    strips = _STRIPS if features.cpu and columns >= _STRIPS * width else 1
    chunks = ceil_div(columns, strips * width)
    group = features.group_size if not features.cpu else 1
    divides = op == "mean" and total > 0
    definitions = {
        **_definitions(op, source, target, held, divides), **_memory_definitions(operands),
        "WIDTH": width, "ALIGNED": whole, "STRIPS": strips,
    }  # fmt: skip
    parameters = [*operands, *_geometry(axes, parts, ceil_div(axes.length, parts), max(total, 1), held)]
    items = axes.kept[0][0] * chunks * parts
    return runtime.launch(f"reduce.{op}", "reduce_columns", definitions, parameters, (items,), (group,))


def _positions(runtime: Runtime, op: str, x: Spec, axes: Axes, out: Spec) -> Launch:
    lanes = _lanes(runtime, axes.length)
    group = runtime.features.group_size if not runtime.features.cpu else 64 if axes.results >= 8192 else 1
    definitions: dict[str, str | int | bool] = {
        "DTYPE": x.dtype.name, "OUT_DTYPE": out.dtype.name, "BETTER": ">" if op == "argmax" else "<",
        "LANES": lanes, "GROUP": group,
    }  # fmt: skip
    geometry = _geometry(axes, 1, axes.length, 1, x.dtype)[:-3]
    return runtime.launch(
        f"reduce.{op}", "reduce_arg", definitions, [Tensor(0), Tensor(1), *geometry], (axes.results * lanes,), (group,)
    )


_MAKERS = Makers(movement.copy, _values, _positions)

LOWERINGS = reductions.lowerings(_MAKERS)


def build(runtime: Runtime, op: str, x: Spec, out: Spec, axes: tuple[int, ...]) -> Launch:
    """A launch (x, out) for contiguous `out` that holds the kept axes in order. Raises UnsupportedOpError."""
    launch = reductions.build(_MAKERS, runtime, op, x, out, axes)
    assert not isinstance(launch, Declined), launch.reason
    return launch
