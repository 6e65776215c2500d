"""argmax and argmin, along rows or down columns; with split-K, a second pass compares the partial results."""

from __future__ import annotations

from polyhal.backends.common.codegen.expressions import register_class
from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Argument, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems.reduction import Axes
from polyhal.backends.opencl_c.lowering.reduction import split
from polyhal.backends.opencl_c.ptx import WHOLE_PROGRAM
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

Args = dict[str, Argument]

_WIDE = ("long", "ulong", "double")
_ROW_WORKERS = 8
"""Groups per compute unit of a GPU: fewer than in value reductions, because comparing positions takes longer."""
_POSITION_BYTES = 8
"""Bytes of a position in the workspace."""


def positions(runtime: Runtime, op: str, x: Spec, axes: Axes, out: Spec) -> Launch | Declined:
    """Build a launch (x, out) for `op`, argmax or argmin; `out` is contiguous and holds the kept axes in order."""
    splits = split.split_terms(runtime, axes, _ROW_WORKERS)
    wide = register_class(x.dtype) in _WIDE
    definitions: dict[str, str | int | bool] = {
        "DTYPE": x.dtype.name,
        "OUT_DTYPE": out.dtype.name,
        "SPLIT": splits > 1,
        "BETTER": ">" if op == "argmax" else "<",
        "OPERATION": "largest" if op == "argmax" else "smallest",
    }
    out_args: Args = {"out": Tensor(1)}
    partial: Args = {"values": Workspace(2), "positions": Workspace(3)}
    args: Args = {"x": Tensor(0), **(partial if splits > 1 else out_args)}
    first: Launch | Declined
    if axes.by_rows:
        first = _rows(runtime, x, axes, splits, definitions, args)
    else:
        first = _columns(runtime, axes, splits, definitions, args, wide)
    if splits == 1 or isinstance(first, Declined):
        return first
    lanes = split.lanes(runtime, splits)
    group = split.row_group(runtime, axes.results)
    second = runtime.launch(
        "reduction/arg_rows",
        definitions | {"LANES": lanes, "GROUP": group},
        {**partial, **out_args, "results": axes.results, "splits": splits},
        (axes.results * lanes,),
        (group,),
        kernel="reduce_positions",
        target=WHOLE_PROGRAM,
    )
    count = splits * axes.results
    return LaunchSequence([first, second], (count * (8 if wide else 4), count * _POSITION_BYTES))


def _rows(
    runtime: Runtime, x: Spec, axes: Axes, splits: int, definitions: dict[str, str | int | bool], memory: Args
) -> Launch:
    terms = ceil_div(axes.length, splits)
    lanes = split.lanes(runtime, terms)
    group = split.row_group(runtime, axes.results * splits)
    width, aligned = split.row_width(runtime, x.aligned, axes, terms // lanes)
    definitions = definitions | {"WIDTH": width, "ALIGNED": aligned, "LANES": lanes, "GROUP": group}
    args = memory | split.geometry(axes, splits, split.row_chunk(runtime, axes, splits, width * lanes))
    items = axes.results * splits * lanes
    return runtime.launch("reduction/arg_rows", definitions, args, (items,), (group,), target=WHOLE_PROGRAM)


def _columns(
    runtime: Runtime, axes: Axes, splits: int, definitions: dict[str, str | int | bool], memory: Args, wide: bool
) -> Launch | Declined:
    terms = ceil_div(axes.length, splits)
    if terms >= 1 << 31:
        return Declined("the axis is longer than 2^31")
    columns = axes.kept[1][0]
    most = runtime.features.vector_width // (2 if wide and runtime.features.cpu else 1)
    width = next((w for w in (most, 4) if columns >= w), 1)
    definitions = definitions | {"WIDTH": width, "POSITION": "long" if wide else "int"}
    args = memory | split.geometry(axes, splits, terms)
    items = axes.kept[0][0] * ceil_div(columns, width) * splits
    group = 1 if runtime.features.cpu else runtime.features.group_size
    return runtime.launch("reduction/arg_columns", definitions, args, (items,), (group,), target=WHOLE_PROGRAM)
