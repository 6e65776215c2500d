"""Adding rows by index on GPUs in a fixed order: each group owns rows and sums them in registers."""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, round_up
from polyhal.backends.common.launching.launch import Argument, Arguments, LaunchSequence, Tensor, Workspace
from polyhal.backends.opencl_c.lowering.gather.problem import FIRST_WORKSPACE, RowScatter
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import contiguous
from polyhal.hal.protocol import Launch

_MAX_GROUP, _MIN_GROUP = 128, 32
"""Work-items that share a row."""
_MAX_TERMS = 32
"""Maximum terms of a row that one work-item sorts; longer rows are summed in splits."""
_INDICES_EACH = 8
"""Indices that a work-item compares between two barriers."""
_MAX_SPLITS = 32
"""Maximum splits of a long row."""
_WORKERS_PER_UNIT = 16
"""Groups per compute unit that process the splits of long rows."""
_END_OF_LIST = -1


def build(runtime: Runtime, p: RowScatter) -> Launch:
    """Build the launches (see shaders/opencl/gather/scatter_add_ordered.cl). Raises KernelBuildError."""
    count, rows, row_width = p.index.count, p.out.rows, p.source.width
    vectors = p.source.aligned and p.out.aligned and p.source.column == 1 and p.out.dtype.itemsize <= 4
    width = 4 if vectors and row_width % 4 == 0 and p.source.row % 4 == 0 else 1
    group = min(_MAX_GROUP, max(_MIN_GROUP, power_of_two_at_least(ceil_div(row_width, width))))
    real = real_type(p.out.dtype)
    definitions: dict[str, str | int | bool] = {
        "DTYPE": p.out.dtype.name,
        "INDEX_DTYPE": p.index.dtype.name,
        "REAL": real,
        "GROUP": group,
        "WIDTH": width,
        "MAX_TERMS": _MAX_TERMS,
        "INDICES_EACH": _INDICES_EACH,
    }
    first, next_, long_rows, partial = (Workspace(FIRST_WORKSPACE + i) for i in range(4))
    firsts, max_long_rows = contiguous(dtypes.int32, (rows,)), count // (_MAX_TERMS + 1)
    columns = round_up(ceil_div(row_width, width), group)
    index, source, out = p.index.args(), p.source.args(), Tensor(p.out.place)

    def kernel(name: str, args: Arguments, items: tuple[int, ...]) -> Launch:
        groups = (group, 1) if len(items) == 2 else (group,)
        return runtime.launch("gather/scatter_add_ordered", definitions, args, items, groups, kernel=name)

    table: dict[str, Argument] = {"rows": rows, "first": first, "next": next_}
    short = {**index, **source, **table, "out": out, "long_rows": long_rows, "width": row_width}
    launches = [
        _clear(runtime, first, rows, long_rows),
        kernel("link_rows", {**index, **table, "count": count}, (count,)),
        kernel("add_short_rows", short, (columns, count)),
    ]
    workspace = [firsts.nbytes, 4 * count, 4 * (1 + max_long_rows)]
    if count > _MAX_TERMS:
        window = group * _INDICES_EACH
        splits = max(1, min(_MAX_SPLITS, count // window))
        workers = _WORKERS_PER_UNIT * runtime.features.compute_units
        split: dict[str, Argument] = {"partial": partial, "long_rows": long_rows, "width": row_width, "splits": splits}
        long = {**index, **source, **split, "count": count, "split_length": round_up(ceil_div(count, splits), window)}
        launches += [
            kernel("add_long_rows", long, (columns, workers)),
            kernel("reduce_long_rows", {**split, "out": out}, (workers * group,)),
        ]
        itemsize = 8 if real in ("double", "long", "ulong") else 4
        workspace.append(max_long_rows * splits * row_width * itemsize)
    return LaunchSequence(launches, tuple(workspace))


def _clear(runtime: Runtime, first: Workspace, rows: int, long_rows: Workspace) -> Launch:
    """Return a step that clears the lists of all rows, and the list of long rows."""
    heads, count = contiguous(dtypes.int32, (rows,)), contiguous(dtypes.int32, (1,))
    return LaunchSequence(
        (
            copy.fill_workspace(runtime, heads, first.index, _END_OF_LIST),
            copy.fill_workspace(runtime, count, long_rows.index),
        )
    )
