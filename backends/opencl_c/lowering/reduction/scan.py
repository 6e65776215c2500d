"""cumsum, cumprod and running extrema: along rows, or down contiguous columns.

If rows or columns are few, they are split, with a first launch for totals of splits. Rows are scanned in one pass where groups
may wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from polyhal.backends.common.codegen.expressions import register_class
from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, round_up
from polyhal.backends.common.launching.launch import Argument, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.launching.split_k import split_count
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.reduction import COMBINE, Operation, accumulator
from polyhal.backends.common.problems.rows import StridedRows, rows_along
from polyhal.backends.opencl_c.dialect import convert, type_name
from polyhal.backends.opencl_c.lowering.reduction import scan_ahead, scan_lookback
from polyhal.backends.opencl_c.lowering.reduction.dispatch import identity
from polyhal.backends.opencl_c.lowering.support.rows import row_args
from polyhal.backends.opencl_c.ptx import WHOLE_PROGRAM
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, collapse
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Args = dict[str, Argument]

_MIN_COLUMNS = 16
"""Minimum contiguous columns for one work-item per column."""
_CPU_WORKERS, _MIN_CPU_SPLIT = 4, 8192
"""Work-items per compute unit that keep a CPU busy, and minimum elements of a split row."""
_GPU_WORKERS, _MIN_GPU_TILES = 32, 8
"""Groups per compute unit that keep a GPU busy, and minimum tiles of a split row."""
_GPU_COLUMNS, _MIN_COLUMN_SPLIT, _MAX_COLUMN_SPLITS = 1024, 64, 64
"""Scans down columns: work-items per compute unit of a GPU, minimum rows of a split column, and maximum splits."""


def _lowering(operation: Operation) -> LoweringFunction:
    def lower(
        runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
    ) -> Launch | Declined:
        x = inputs[0]
        assert isinstance(x, Spec)
        return scan(runtime, operation, x, outputs[0], params["axis"], accumulator(operation, x.dtype))

    return lower


def scan(runtime: Runtime, operation: Operation, x: Spec, out: Spec, axis: int, sum_dtype: DType) -> Launch | Declined:
    """Return a launch (x, out) of prefix sums, products or extrema in `sum_dtype` along an axis; `out` may be `x`."""
    definitions: dict[str, str | int | bool] = {
        "DTYPE": x.dtype.name,
        "OUT_DTYPE": out.dtype.name,
        "ACCUMULATOR": type_name(register_class(sum_dtype)),
        "MAP(v)": convert("v", x.dtype, sum_dtype),
        "OPERATION": COMBINE[operation],
        "IDENTITY": identity(operation, sum_dtype),
        "WHOLE_NUMBERS": not sum_dtype.is_floating_point,
        "COMPENSATED": operation == "sum" and sum_dtype.is_floating_point,
    }
    columns = _columns(x, axis)
    if columns is not None:
        return _down_columns(runtime, x.shape[axis], columns, sum_dtype.itemsize, definitions)
    merged = rows_along((x, out), axis)
    if isinstance(merged, Declined):
        return merged
    return _along_rows(runtime, (x, out), merged, sum_dtype.itemsize, definitions)


def _columns(x: Spec, axis: int) -> tuple[int, int, int, int] | None:
    """Return slabs, columns, and the strides of slabs and rows of x; None if its columns are not contiguous."""
    inner, (steps,) = collapse(x.shape[axis + 1 :], (x.strides[axis + 1 :],))
    outer, (slabs,) = collapse(x.shape[:axis], (x.strides[:axis],))
    if len(inner) > 1 or len(outer) > 1 or steps[0] != 1 or inner[0] < _MIN_COLUMNS or x.shape[axis] >= 1 << 31:
        return None
    return outer[0], inner[0], slabs[0], x.strides[axis]


def _width(runtime: Runtime, itemsize: int, length: int) -> int:
    """Return the vector width of a CPU."""
    width = runtime.features.vector_width // (2 if itemsize == 8 else 1)
    while width > 1 and width > length:
        width //= 2
    return width if width >= 4 else 1


def _down_columns(
    runtime: Runtime,
    length: int,
    columns: tuple[int, int, int, int],
    itemsize: int,
    definitions: dict[str, str | int | bool],
) -> Launch:
    slabs, count, slab_stride, row_stride = columns
    features = runtime.features
    width = _width(runtime, itemsize, count) if features.cpu else 1
    group = 1 if features.cpu else 64
    tasks = slabs * ceil_div(count, width)
    workers = (_CPU_WORKERS if features.cpu else _GPU_COLUMNS) * features.compute_units
    splits = split_count(tasks, workers, length // _MIN_COLUMN_SPLIT, _MAX_COLUMN_SPLITS)
    geometry: Args = {
        "x_slab": slab_stride,
        "x_row": row_stride,
        "slabs": slabs,
        "length": length,
        "columns": count,
        "splits": splits,
        "split_length": ceil_div(length, splits),
    }
    definitions = definitions | {"WIDTH": width, "SPLIT": splits > 1}
    items, groups = (tasks * splits,), (group,)
    totals: Args = {"totals": Workspace(2)} if splits > 1 else {}
    scan = runtime.launch(
        "reduction/scan_columns",
        definitions,
        {"x": Tensor(0), "out": Tensor(1), **totals, **geometry},
        items,
        groups,
        target=WHOLE_PROGRAM,
    )
    if splits == 1:
        return scan
    first = runtime.launch(
        "reduction/scan_columns",
        definitions,
        {"x": Tensor(0), **totals, **geometry},
        items,
        groups,
        kernel="column_totals",
        target=WHOLE_PROGRAM,
    )
    return LaunchSequence([first, scan], (slabs * splits * count * itemsize,))


def _distances(merged: StridedRows) -> list[int]:
    """Return the length of the rows and their distances."""
    steps = zip(merged.outer * len(merged.strides), chain.from_iterable(merged.strides), strict=True)
    return [merged.length, *(stride for length, stride in steps if length > 1)]


def _along_rows(
    runtime: Runtime,
    specs: Sequence[Spec],
    merged: StridedRows,
    itemsize: int,
    definitions: dict[str, str | int | bool],
) -> Launch:
    features = runtime.features
    width, group, aligned = 1, 1, False
    if features.cpu:
        width = _width(runtime, itemsize, merged.length) if merged.contiguous else 1
        workers, min_terms = _CPU_WORKERS * features.compute_units, _MIN_CPU_SPLIT
    else:
        aligned = merged.contiguous and all(s.aligned for s in specs) and all(d % 4 == 0 for d in _distances(merged))
        width = 4 if aligned else 1
        group = min(features.group_size, max(32, power_of_two_at_least(ceil_div(merged.length, width))))
        workers, min_terms = _GPU_WORKERS * features.compute_units, _MIN_GPU_TILES * group * width
    splits = split_count(merged.count, workers, merged.length // min_terms)
    if not features.cpu and scan_ahead.suits(features, specs, merged, itemsize, width):
        return scan_ahead.scan_ahead(runtime, merged, definitions)
    if splits > 1 and not features.cpu and scan_lookback.fits(features):
        return scan_lookback.look_back(runtime, specs, merged, itemsize, width, definitions)
    numbers: Args = {"splits": splits, "split_length": round_up(ceil_div(merged.length, splits), width)}
    definitions = definitions | {"WIDTH": width, "ALIGNED": aligned, "GROUP": group, "SPLIT": splits > 1}
    items, groups = (merged.count * splits * group,), (group,)
    totals: Args = {"totals": Workspace(2)} if splits > 1 else {}
    scan = runtime.launch(
        "reduction/scan_rows",
        definitions,
        {"x": Tensor(0), "out": Tensor(1), **totals, **row_args(merged, "x", "out"), **numbers},
        items,
        groups,
        target=WHOLE_PROGRAM,
    )
    if splits == 1:
        return scan
    first = runtime.launch(
        "reduction/scan_rows",
        definitions,
        {"x": Tensor(0), **totals, **row_args(merged, "x"), **numbers},
        items,
        groups,
        kernel="scan_totals",
        target=WHOLE_PROGRAM,
    )
    return LaunchSequence([first, scan], (merged.count * splits * itemsize,))


LOWERINGS: dict[str, LoweringFunction] = {
    "cumsum": _lowering("sum"),
    "cumprod": _lowering("prod"),
    "running_max": _lowering("max"),
    "running_min": _lowering("min"),
}
