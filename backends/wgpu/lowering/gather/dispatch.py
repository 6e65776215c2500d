"""Rows picked and added by index, and elements along an axis. Additions run in a fixed order, without atomics on floats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least
from polyhal.backends.common.launching.launch import Constant, LaunchSequence, Number, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.gather import flat_stride, outer_axis_inner, row_stride
from polyhal.backends.common.problems.multi_tensor import copy_unless_aliased
from polyhal.backends.wgpu.launch import Parameter
from polyhal.backends.wgpu.lowering.pointwise import copy
from polyhal.backends.wgpu.lowering.support.windows import Part, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ALIGNMENT, Spec, contiguous
from polyhal.hal.protocol import Declined, InputSpec, Launch

Inputs = tuple[InputSpec | None, ...]
Places = tuple[int, int, int]

_LARGEST = 1 << 31
_LANES = 4
_LONGEST_LOOP = 1 << 15
"""Indices that one invocation visits in a launch, below every driver's limit for loops (see `loop_limit` in quirks.py)."""
_FEW_COLUMNS = 32
_FEW_OWNERS = 2048
"""Rows of a result below which each is shared by more invocations, so that the device is busy."""


def _uints(*values: int) -> list[Parameter]:
    return [Constant(v, "uint") for v in values]


# --- rows picked ----------------------------------------------------------------------------------------------------


def _unit(x: Spec, out: Spec) -> int:
    """Bytes that can be moved at once: whole rows of them, at multiples of them."""
    item, width = x.dtype.itemsize, x.shape[1]
    if x.aligned and out.aligned and (width == 1 or x.strides[1] == 1):
        for unit in (16, 8, 4):
            if unit > item and width * item % unit == 0 and x.strides[0] * item % unit == 0:
                return unit
    return item


def _gather(runtime: Runtime, index: Spec, x: Spec, out: Spec, places: Places) -> Launch | Declined:
    """Rows of `x`; `places` are the arguments index, x and out. Tables and results that are too large are cut by rows."""
    step = flat_stride(index)
    if step is None:
        return Declined("the index is not evenly spaced")
    (rows, width), count = x.shape, index.size
    if max(count, rows, width) >= _LARGEST:
        return Declined("an axis is longer than 2^31")
    table = _rows_at_once(runtime, rows, abs(x.strides[0]) * x.dtype.itemsize)
    picked = _rows_at_once(runtime, count, max(width * x.dtype.itemsize, abs(step) * index.dtype.itemsize))
    if table == rows and picked == count:
        return _gather_part(runtime, (index, x, out), step, places, (0, rows))
    launches = []
    for at in range(0, count, picked):
        n = min(picked, count - at)
        index_part = Spec(index.dtype, (n,), (step,), index.aligned)
        out_part = contiguous(out.dtype, (n, width))._replace(aligned=out.aligned)
        for first in range(0, rows, table):
            x_part = x._replace(shape=(min(table, rows - first), width))
            specs = (index_part, x_part, out_part)
            moved = (at * step, first * x.strides[0], at * width)
            ordered = sorted(zip(places, specs, moved, strict=True))
            part = Part((ordered[0][1], ordered[1][1]), (ordered[2][1],), tuple(o[2] for o in ordered))
            launches.append(part.around(_gather_part(runtime, specs, step, places, (first, rows))))
    return LaunchSequence("gather", launches)


def _rows_at_once(runtime: Runtime, rows: int, nbytes: int) -> int:
    """How many of `rows` rows, `nbytes` apart, a kernel can see; pieces begin at aligned elements."""
    room = (runtime.features.max_binding - 512) // max(nbytes, 1)
    return rows if room >= rows else max(room // ALIGNMENT * ALIGNMENT, 1)


def _gather_part(
    runtime: Runtime, specs: tuple[Spec, Spec, Spec], step: int, places: Places, table: tuple[int, int]
) -> Launch:
    """Rows that lie in the part of a table given by its first row and the whole's length."""
    index, x, out = specs
    unit, item = _unit(x, out), x.dtype.itemsize
    ratio = unit // item
    width = x.shape[1] // ratio
    items = index.size * width
    size = runtime.features.group_size
    first, length = table
    parameters: list[Parameter] = [
        *(Tensor(i) for i in places), *_uints(items, width, length, first, x.shape[0], int(first == 0)),
        *_uints(step, x.strides[0] // ratio, x.strides[1] if width > 1 and ratio == 1 else 1),
    ]  # fmt: skip
    definitions = {"INDEX": index.dtype.name, "ITEM": item, "UNIT": unit, "GROUP": size}
    return runtime.launch("gather", "gather/gather", definitions, parameters, ceil_div(items, size))


def gather(runtime: Runtime, index: Spec, x: Spec, out: Spec) -> Launch:
    """A launch (index, x, out): rows of `x`, zeros where an index is out of range. All contiguous."""
    launch = _gather(runtime, index, x, out, (0, 1, 2))
    assert not isinstance(launch, Declined)
    return launch


def _embedding(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    weight, index = inputs
    if not isinstance(weight, Spec) or not isinstance(index, Spec):
        return Declined("an operand is a number")
    return _gather(runtime, index, weight, outputs[0], (1, 0, 2))


# --- rows added -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of `source` (of these strides) that are added to rows of `out`. `places` are the arguments index, source, out."""

    index: Spec
    source: Spec
    row_step: int
    column_step: int
    out: Spec
    places: Places
    wrap: bool = False
    """Whether negative numbers count from the end."""

    def definitions(self, runtime: Runtime) -> dict[str, Any]:
        return {
            "INDEX": self.index.dtype.name, "DTYPE": self.out.dtype.name, "GROUP": runtime.features.group_size,
            "WRAP": self.wrap,
        }  # fmt: skip

    def tensors(self) -> list[Parameter]:
        return [Tensor(i) for i in self.places]


def _scatter(runtime: Runtime, rows: Rows, *, accumulate: bool) -> Launch | Declined:
    """The sums of rows added to what `out` holds, or put in its place."""
    step = flat_stride(rows.index)
    if step is None:
        return Declined("the index is not evenly spaced")
    count, (length, width) = rows.index.size, rows.out.shape
    if max(count, length, width) >= _LARGEST or too_large(runtime, rows.index, rows.source, rows.out):
        return Declined("an operand is larger than what a kernel can see at once")
    if runtime.features.cpu:
        launch = _by_columns(runtime, rows, step)
    elif length <= 2 * count:
        return _by_owners(runtime, rows, step, length, BY_ROWS=True, ACCUMULATE=accumulate)
    else:
        launch = _by_owners(runtime, rows, step, count, BY_ROWS=False, ACCUMULATE=True)
    return launch if accumulate else _after_zeros(runtime, launch, rows.out, rows.places[2])


def _by_owners(runtime: Runtime, rows: Rows, step: int, owners: int, **flags: bool) -> Launch:
    """A group per row of the result, or per index where there are many more rows than indices."""
    length, width = rows.out.shape
    vectors = (
        rows.source.aligned and rows.out.aligned and rows.column_step == 1 and rows.row_step % _LANES == 0
        and width % _LANES == 0 and rows.out.dtype.itemsize <= 4
    )  # fmt: skip
    lanes = _LANES if vectors else 1
    units = width // lanes
    columns = power_of_two_at_least(units)
    columns = min(columns, runtime.features.group_size if owners >= _FEW_OWNERS else _FEW_COLUMNS)
    tiles = ceil_div(units, columns)
    definitions = {**rows.definitions(runtime), "LANES": lanes, "COLUMNS": columns, **flags}
    numbers = (rows.index.size, width, length, owners, tiles, step, rows.row_step, rows.column_step)
    parameters = [*rows.tensors(), *_uints(*numbers)]
    return runtime.launch("scatter_rows", "gather/scatter_add", definitions, parameters, owners * tiles)


def _by_columns(runtime: Runtime, rows: Rows, step: int) -> Launch:
    """An invocation per column. Half precision would be rounded at every step, so callers keep it out."""
    length, width = rows.out.shape
    groups = ceil_div(width, runtime.features.group_size)
    numbers = (width, length, step, rows.row_step, rows.column_step)

    def launch(first: int, last: int) -> Launch:
        parameters = [*rows.tensors(), *_uints(*numbers, first, last)]
        return runtime.launch(
            "scatter_columns", "gather/cpu_scatter_add", rows.definitions(runtime), parameters, groups
        )

    return _in_stretches(rows.index.size, launch)


def _in_stretches(count: int, launch: Callable[[int, int], Launch]) -> Launch:
    """One launch after the other, for the indices from `first` to `last` that one invocation may walk."""
    launches = [launch(at, min(at + _LONGEST_LOOP, count)) for at in range(0, count, _LONGEST_LOOP)]
    return launches[0] if len(launches) == 1 else LaunchSequence(launches[0].name, launches)


def _after_zeros(runtime: Runtime, launch: Launch, out: Spec, place: int) -> Launch:
    zero = copy.fill(runtime, out)
    return LaunchSequence(launch.name, (lambda *args: zero(0, args[place]), launch))


def scatter_add(runtime: Runtime, index: Spec, source: Spec, out: Spec) -> Launch:
    """A launch (index, source, out) that adds rows, in the order of the index. All contiguous."""
    rows = Rows(index, source, source.strides[0], source.strides[1], out, (0, 1, 2))
    launch = _scatter(runtime, rows, accumulate=True)
    assert not isinstance(launch, Declined), launch.reason
    return launch


def _is_half(dtype: DType) -> bool:
    return dtype.is_floating_point and dtype.itemsize < dtypes.float32.itemsize


def _scatter_rows(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    src, index = inputs
    (out,) = outputs
    if not isinstance(src, Spec) or not isinstance(index, Spec):
        return Declined("an operand is a number")
    if runtime.features.cpu and _is_half(out.dtype):
        return Declined(f"sums of {out.dtype.name} would be rounded at every step")
    step = row_stride(src)
    if step is None:
        return Declined("the rows of the source are not evenly spaced")
    column_step = src.strides[-1] if src.shape[-1] > 1 else 1
    return _scatter(runtime, Rows(index, src, step, column_step, out, (1, 0, 2)), accumulate=False)


# --- elements along an axis -----------------------------------------------------------------------------------------


def _numbers_along(data: Spec, index: Spec, axis: int, length: int) -> tuple[int, ...] | None:
    """What kernels along an axis are told of (data, index), or None where the axes on one side of it cannot be merged."""
    lying, positions = outer_axis_inner(data, axis), outer_axis_inner(index, axis)
    if lying is None or positions is None:
        return None
    (_, picked, inner), index_steps = positions
    return picked, inner, length, *lying[1], *index_steps


def _along(runtime: Runtime, name: str, definitions: Mapping[str, Any], items: int, numbers: Sequence[int]) -> Launch:
    """A launch (data, index, out) over `items` elements or lines."""
    size = runtime.features.group_size
    parameters = [Tensor(0), Tensor(1), Tensor(2), *_uints(items, *numbers)]
    return runtime.launch(name, f"gather/{name}", {**definitions, "GROUP": size}, parameters, ceil_div(items, size))


def _take_along_axis(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    x, index = inputs
    (out,) = outputs
    if not isinstance(x, Spec) or not isinstance(index, Spec):
        return Declined("an operand is a number")
    if too_large(runtime, x, index, out):
        return Declined("an operand is larger than what a kernel can see at once")
    numbers = _numbers_along(x, index, params["axis"], x.shape[params["axis"]])
    if numbers is None:
        return Declined("the axes beside the indexed one cannot be merged")
    definitions = {"UNIT": out.dtype.itemsize, "INDEX": index.dtype.name}
    return _along(runtime, "take_along_axis", definitions, out.size, numbers)


def _scatter_along_axis(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    src, index = inputs
    (out,) = outputs
    if not isinstance(src, Spec) or not isinstance(index, Spec):
        return Declined("an operand is a number")
    axis, length = params["axis"], params["length"]
    if _is_half(out.dtype) and index.shape[axis] > 1:
        return Declined(f"sums of {out.dtype.name} would be rounded at every step")
    if too_large(runtime, src, index, out):
        return Declined("an operand is larger than what a kernel can see at once")
    lines = index.size // index.shape[axis]
    if lines == 1 and not runtime.features.cpu:
        # One long line would keep one invocation busy: its elements are rows of one column.
        column = contiguous(out.dtype, (length, 1))._replace(aligned=out.aligned)
        line = Spec(index.dtype, (index.size,), (index.strides[axis],), index.aligned)
        rows = Rows(line, src, src.strides[axis], 1, column, (1, 0, 2), wrap=True)
        return _scatter(runtime, rows, accumulate=False)
    numbers = _numbers_along(src, index, axis, length)
    if numbers is None:
        return Declined("the axes beside the indexed one cannot be merged")
    definitions = {"DTYPE": out.dtype.name, "INDEX": index.dtype.name}

    def launch(first: int, last: int) -> Launch:
        return _along(runtime, "scatter_along_axis", definitions, lines, (*numbers, first, last))

    return _after_zeros(runtime, _in_stretches(index.shape[axis], launch), out, 2)


# --- rows replaced --------------------------------------------------------------------------------------------------


def _store_rows(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    x, value, _ = inputs
    (out,) = outputs
    if not isinstance(x, Spec) or not isinstance(value, Spec) or value.dtype is not x.dtype:
        return Declined("rows of another dtype")
    if value.ndim > 4 or too_large(runtime, value, out):
        return Declined("more than 4 axes, or an operand is larger than what a kernel can see at once")
    rows, width = value.shape[-2:]
    inner = value.shape[-3] if value.ndim > 2 else 1
    steps = (0,) * (4 - value.ndim) + value.strides
    size = runtime.features.group_size
    parameters: list[Parameter] = [
        Tensor(1), Tensor(3), Number(2, "int"), *_uints(value.size, rows, width, x.shape[-2], inner, *steps),
    ]  # fmt: skip
    definitions = {"UNIT": out.dtype.itemsize, "GROUP": size}
    store = runtime.launch("store_rows", "gather/store_rows", definitions, parameters, ceil_div(value.size, size))
    settled = copy_unless_aliased(copy.copy, runtime, [(0, 0)], inputs, outputs)
    return LaunchSequence("store_rows", (settled, store))


LOWERINGS: dict[str, LoweringFunction] = {
    "embedding": _embedding,
    "store_rows": _store_rows,
    "scatter_rows": _scatter_rows,
    "take_along_axis": _take_along_axis,
    "scatter_along_axis": _scatter_along_axis,
}
