"""Positions of extremes: along rows or down columns, in one pass, or in parts that a second pass joins."""

from __future__ import annotations

from polyhal.backends.common.codegen.expressions import register_class
from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems.reduction import Axes
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.reduction import split
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

_WIDE = ("long", "ulong", "double")
_ROW_WORKERS = 16
"""Groups per compute unit of a GPU: fewer than for values, because joining positions takes longer."""
_PLACE = 8
"""Bytes of a position between the passes."""


def positions(runtime: Runtime, op: str, x: Spec, axes: Axes, out: Spec) -> Launch | Declined:
    """A launch (x, out) for `op`, argmax or argmin; `out` is contiguous and holds the kept axes in order."""
    parts = split.parts(runtime, axes, _ROW_WORKERS)
    wide = register_class(x.dtype) in _WIDE
    definitions: dict[str, str | int | bool] = {
        "DTYPE": x.dtype.name, "OUT_DTYPE": out.dtype.name, "PARTIAL": parts > 1,
        "BETTER": ">" if op == "argmax" else "<", "OPERATION": "largest" if op == "argmax" else "smallest",
    }  # fmt: skip
    results: list[Parameter] = [Tensor(1)] if parts == 1 else [Workspace(2), Workspace(3)]
    first = (_rows if axes.by_rows else _columns)(runtime, op, x, axes, parts, definitions, [Tensor(0), *results], wide)
    if parts == 1 or isinstance(first, Declined):
        return first
    lanes = split.lanes(runtime, parts)
    group = split.row_group(runtime, axes.results)
    parameters = [*results, Tensor(1), Constant(axes.results, "ulong"), Constant(parts, "ulong")]
    joining = definitions | {"LANES": lanes, "GROUP": group}
    second = runtime.launch(
        f"reduce.{op}",
        "reduction/arg_rows",
        joining,
        parameters,
        (axes.results * lanes,),
        (group,),
        kernel="join_positions",
    )
    count = parts * axes.results
    return LaunchSequence(first.name, [first, second], (count * (8 if wide else 4), count * _PLACE))


def _rows(
    runtime: Runtime, op: str, x: Spec, axes: Axes, parts: int, definitions: dict[str, str | int | bool],
    operands: list[Parameter], wide: bool,
) -> Launch:  # fmt: skip
    part = ceil_div(axes.length, parts)
    lanes = split.lanes(runtime, part)
    group = split.row_group(runtime, axes.results * parts)
    width, aligned = split.row_width(runtime, x.aligned, axes, part // lanes)
    definitions = definitions | {"WIDTH": width, "ALIGNED": aligned, "LANES": lanes, "GROUP": group}
    numbers = split.geometry(axes, parts, split.row_piece(runtime, axes, parts, width * lanes))
    items = axes.results * parts * lanes
    return runtime.launch(f"reduce.{op}", "reduction/arg_rows", definitions, [*operands, *numbers], (items,), (group,))


def _columns(
    runtime: Runtime, op: str, x: Spec, axes: Axes, parts: int, definitions: dict[str, str | int | bool],
    operands: list[Parameter], wide: bool,
) -> Launch | Declined:  # fmt: skip
    part = ceil_div(axes.length, parts)
    if part >= 1 << 31:
        return Declined("the axis is longer than 2^31")
    columns = axes.kept[1][0]
    most = runtime.features.vector_width // (2 if wide and runtime.features.cpu else 1)
    width = next((w for w in (most, 4) if columns >= w), 1)
    definitions = definitions | {"WIDTH": width, "POSITION": "long" if wide else "int"}
    numbers = split.geometry(axes, parts, part)
    items = axes.kept[0][0] * ceil_div(columns, width) * parts
    group = 1 if runtime.features.cpu else runtime.features.group_size
    return runtime.launch(
        f"reduce.{op}", "reduction/arg_columns", definitions, [*operands, *numbers], (items,), (group,)
    )
