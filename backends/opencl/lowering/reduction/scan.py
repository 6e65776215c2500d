"""Running sums and products: along rows, in parts where there are few of them, or down columns that lie side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polyhal.backends.common.codegen.expressions import register_class
from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, round_up
from polyhal.backends.common.launching.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.launching.split_k import split_count
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.reduction import Operation, accumulator
from polyhal.backends.common.problems.rows import StridedRows, rows_along
from polyhal.backends.opencl.dialect import convert, type_name
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, collapse
from polyhal.hal.protocol import Declined, InputSpec, Launch

_LEAST_COLUMNS = 16
"""Neighbouring columns that are worth a work-item each."""
_CPU_WORKERS, _CPU_PART = 4, 8192
"""Work-items per compute unit that keep a CPU busy, and the elements below which a row is not divided."""
_GPU_WORKERS, _GPU_TILES = 32, 8
"""Groups per compute unit that keep a GPU busy, and tiles below which a row is not divided."""
_GPU_COLUMNS, _COLUMN_PART, _COLUMN_PARTS = 1024, 64, 64
"""Down columns: work-items per compute unit of a GPU, rows below which columns are not divided, and the most parts."""


def _lowering(operation: Operation) -> LoweringFunction:
    def lower(
        runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        x = inputs[0]
        assert isinstance(x, Spec)
        return scan(runtime, operation, x, outputs[0], params["axis"], accumulator(operation, x.dtype))

    return lower


def scan(runtime: Runtime, operation: Operation, x: Spec, out: Spec, axis: int, held: DType) -> Launch | Declined:
    """A launch (x, out) that adds up or multiplies along an axis, in registers of the dtype `held`; out may be x."""
    definitions: dict[str, str | int | bool] = {
        "DTYPE": x.dtype.name, "OUT_DTYPE": out.dtype.name, "ACCUMULATOR": type_name(register_class(held)),
        "MAP(v)": convert("v", x.dtype, held), "OPERATION": operation, "IDENTITY": int(operation == "prod"),
        "WHOLE_NUMBERS": not held.is_floating_point,
    }  # fmt: skip
    columns = _columns(x, axis)
    if columns is not None:
        return _down_columns(runtime, f"cum{operation}", x.shape[axis], columns, held.itemsize, definitions)
    found = rows_along((x, out), axis)
    if isinstance(found, Declined):
        return found
    return _along_rows(runtime, f"cum{operation}", (x, out), found, held.itemsize, definitions)


def _columns(x: Spec, axis: int) -> tuple[int, int, int, int] | None:
    """Slabs, columns, and the elements of x from one slab and from one row to the next, where columns lie side by side."""
    inner, (steps,) = collapse(x.shape[axis + 1 :], (x.strides[axis + 1 :],))
    outer, (slabs,) = collapse(x.shape[:axis], (x.strides[:axis],))
    if len(inner) > 1 or len(outer) > 1 or steps[0] != 1 or inner[0] < _LEAST_COLUMNS or x.shape[axis] >= 1 << 31:
        return None
    return outer[0], inner[0], slabs[0], x.strides[axis]


def _width(runtime: Runtime, itemsize: int, length: int) -> int:
    """Elements in a vector of a CPU."""
    width = runtime.features.vector_width // (2 if itemsize == 8 else 1)
    while width > 1 and width > length:
        width //= 2
    return width if width >= 4 else 1


def _down_columns(
    runtime: Runtime, name: str, length: int, columns: tuple[int, int, int, int], itemsize: int,
    definitions: dict[str, str | int | bool],
) -> Launch:  # fmt: skip
    slabs, count, slab, row = columns
    features = runtime.features
    width = _width(runtime, itemsize, count) if features.cpu else 1
    group = 1 if features.cpu else 64
    chunks = slabs * ceil_div(count, width)
    workers = (_CPU_WORKERS if features.cpu else _GPU_COLUMNS) * features.compute_units
    parts = split_count(chunks, workers, length // _COLUMN_PART, _COLUMN_PARTS)
    part = ceil_div(length, parts)
    numbers: list[Parameter] = [
        Constant(slabs, "uint"), Constant(length, "uint"), Constant(count, "uint"), Constant(slab, "long"),
        Constant(row, "long"), Constant(parts, "uint"), Constant(part, "uint"),
    ]  # fmt: skip
    definitions = definitions | {"WIDTH": width, "PARTS": parts > 1}
    totals: list[Parameter] = [Workspace(2)] if parts > 1 else []
    items, groups = (chunks * parts,), (group,)
    scan = runtime.launch(
        name, "reduction/scan_columns", definitions, [Tensor(0), Tensor(1), *totals, *numbers], items, groups
    )
    if parts == 1:
        return scan
    first = runtime.launch(
        name,
        "reduction/scan_columns",
        definitions,
        [Tensor(0), *totals, *numbers],
        items,
        groups,
        kernel="column_totals",
    )
    return LaunchSequence(name, [first, scan], (slabs * parts * count * itemsize,))


def _along_rows(
    runtime: Runtime, name: str, specs: Sequence[Spec], found: StridedRows, itemsize: int,
    definitions: dict[str, str | int | bool],
) -> Launch:  # fmt: skip
    features = runtime.features
    width, group, aligned = 1, 1, False
    if features.cpu:
        width = _width(runtime, itemsize, found.length) if found.contiguous else 1
        workers, min_terms = _CPU_WORKERS * features.compute_units, _CPU_PART
    else:
        steps = (found.length, *(t for stride in found.strides for t in stride))
        aligned = found.contiguous and all(s.aligned for s in specs) and all(t % 4 == 0 for t in steps)
        width = 4 if aligned else 1
        group = min(features.group_size, max(32, power_of_two_at_least(ceil_div(found.length, width))))
        workers, min_terms = _GPU_WORKERS * features.compute_units, _GPU_TILES * group * width
    parts = split_count(found.count, workers, found.length // min_terms)
    part = round_up(ceil_div(found.length, parts), width)
    definitions = definitions | {"WIDTH": width, "ALIGNED": aligned, "GROUP": group, "PARTS": parts > 1}
    rows: list[Parameter] = [
        Constant(found.count, "ulong"), Constant(found.length, "uint"), Constant(1, "uint"),
        Constant(found.outer[1], "uint"), Constant(found.outer[2], "uint"),
    ]  # fmt: skip
    strides = [
        [Constant(v, "long") for v in (*stride, step)] for stride, step in zip(found.strides, found.steps, strict=True)
    ]
    division = [Constant(parts, "uint"), Constant(part, "uint")]
    items, groups = (found.count * parts * group,), (group,)
    totals: list[Parameter] = [Workspace(2)] if parts > 1 else []
    scan = runtime.launch(
        name, "reduction/scan_rows", definitions, [Tensor(0), Tensor(1), *totals, *rows, *strides[0], *strides[1], *division],
        items, groups,
    )  # fmt: skip
    if parts == 1:
        return scan
    first = runtime.launch(
        name, "reduction/scan_rows", definitions, [Tensor(0), *totals, *rows, *strides[0], *division], items, groups,
        kernel="scan_totals",
    )  # fmt: skip
    return LaunchSequence(name, [first, scan], (found.count * parts * itemsize,))


LOWERINGS: dict[str, LoweringFunction] = {"cumsum": _lowering("sum"), "cumprod": _lowering("prod")}
