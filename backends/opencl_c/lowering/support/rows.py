"""Launches of kernels over rows: operands walked along one axis, with the other axes merged (shaders/opencl/lib/rows.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from polyhal.backends.common.codegen.expressions import register_class
from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least
from polyhal.backends.common.launching.launch import Argument
from polyhal.backends.common.problems.rows import StridedRows, rows_along
from polyhal.backends.opencl_c.dialect import type_name
from polyhal.backends.opencl_c.lowering.support.group_reduce import exchange
from polyhal.backends.opencl_c.lowering.support.prefetch import prefetch_distance
from polyhal.backends.opencl_c.lowering.support.wave import filled
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.core.kernels.tuning import Family, size_class
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec

_CPU_ELEMENTS = 16384
"""Approximate elements per work-item of a CPU, to amortize its start."""
_WORKERS = 4
"""Work-items per compute unit of a CPU, for load balance."""
_SCALARS = 16
"""Elements, summed over operands, that a work-item of a GPU keeps in registers if it reads them one at a time."""
_MIN_LANES = 32
_TRANSACTION = 16
"""Bytes that a work-item of a GPU moves at once."""
_STRIDED_GROUP = 64
_PERSISTENT_ITEMS = 512
"""Work-items per compute unit of a GPU that accumulate over rows."""


@dataclass(frozen=True, slots=True)
class RowTuning:
    """Tunable parameters by which work-items of a GPU share rows."""

    registers: int = 32
    """Elements, summed over operands, that a work-item keeps in registers."""
    busy: int = 256
    """Minimum work-items per compute unit."""


ROW_TUNING = Family[RowTuning]("rows", {"registers": (16, 32, 64), "busy": (128, 256, 512, 1024)})


@dataclass(frozen=True, slots=True)
class RowTile:
    """Division of rows among work-items."""

    width: int
    """Elements of a vector."""
    lanes: int
    """Work-items that share a row."""
    group: int
    """Work-items in a group: `lanes`, or a multiple if a group has several rows at a time."""
    row_vectors: int
    """Vectors of a row that each work-item keeps in registers; 0 if every pass reads the row again."""
    rows_each: int
    """Rows that a group processes in sequence."""
    aligned: bool = False
    """True if every vector is aligned to its size."""


@dataclass(frozen=True, slots=True)
class RowKernel:
    """Definitions and launch geometry of a kernel over rows."""

    merged: StridedRows
    rows_each: int
    definitions: dict[str, str | int | bool]
    items: tuple[int, ...]
    group: tuple[int, ...]

    @property
    def rows(self) -> int:
        return self.merged.count

    @property
    def length(self) -> int:
        return self.merged.length

    @property
    def real(self) -> str:
        """C type in which the kernel computes."""
        return str(self.definitions["REAL"])

    def args(self, *operands: str) -> dict[str, Argument]:
        """Return ROW_MEMBERS and the STRIDE_MEMBERS of the operands, which have these names in the kernel."""
        return row_args(self.merged, *operands, rows_each=self.rows_each)


def row_args(merged: StridedRows, *operands: str, rows_each: int = 1) -> dict[str, Argument]:
    """Return ROW_MEMBERS and the STRIDE_MEMBERS of the first operands, which have these names in the kernel."""
    args: dict[str, Argument] = {
        "rows": merged.count,
        "length": merged.length,
        "rows_each": rows_each,
        "outer1": merged.outer[1],
        "outer2": merged.outer[2],
    }
    for name, (outer0, outer1, outer2), step in zip(operands, merged.strides, merged.steps, strict=False):
        args |= {f"{name}_outer0": outer0, f"{name}_outer1": outer1, f"{name}_outer2": outer2, f"{name}_step": step}
    return args


def row_kernel(
    runtime: Runtime,
    specs: Sequence[Spec],
    axis: int,
    *,
    cached: int = 0,
    parameters: Sequence[InputSpec | None] = (),
    boundary: int = 0,
    persistent: bool = False,
) -> RowKernel | Declined:
    """Plan a kernel over rows along `axis` of operands of equal shape.

    A GPU keeps rows of the first `cached` operands in registers if they fit. `parameters` are operands of one row that
    are read with every row. No cached vector crosses a multiple of `boundary`. If `persistent`, only as many work-items
    are launched as keep the device busy, since each has its own sums; this applies to CPUs, and to GPUs that keep
    rows in registers.
    """
    merged = rows_along(specs, axis)
    if isinstance(merged, Declined):
        return merged
    dtype = specs[0].dtype
    tile = (
        _cpu_tile(runtime, dtype, merged, persistent)
        if runtime.features.cpu
        else _gpu_tile(runtime, specs, merged, cached, parameters, boundary)
    )
    if persistent and tile.row_vectors:
        groups = max(1, _PERSISTENT_ITEMS // tile.lanes) * runtime.features.compute_units
        tile = replace(tile, rows_each=ceil_div(merged.count, groups))
    real = real_type(dtype)
    definitions: dict[str, str | int | bool] = {
        "DTYPE": dtype.name,
        "REAL": real,
        "WIDTH": tile.width,
        "ALIGNED": tile.aligned,
        "GROUP": tile.group,
        "LANES": tile.lanes,
        "ROW_VECTORS": tile.row_vectors,
        "FULL": tile.row_vectors * tile.lanes * tile.width == merged.length,
        "EXCHANGE": exchange(runtime, 8 if real == "double" else 4, tile.lanes, tile.group),
        "PREFETCH_DISTANCE": prefetch_distance(runtime),
        "POLYNOMIAL_EXP": polynomial_exp(runtime, dtype),
        "POLYNOMIAL_EXP_FAST": runtime.features.cpu and real == "float",
        "PTX_EXP_FAST": runtime.features.compute_capability > 0 and dtype.itemsize == 2,
        "PTX_BFLOAT16": runtime.features.tensor_cores,
    }
    items = ceil_div(merged.count, tile.rows_each) * tile.lanes
    return RowKernel(merged, tile.rows_each, definitions, (items,), (tile.group,))


def _cpu_tile(runtime: Runtime, dtype: DType, merged: StridedRows, persistent: bool) -> RowTile:
    """Return a tile with several rows per work-item, in vectors as wide as fit in a row."""
    features = runtime.features
    if not merged.contiguous:
        return RowTile(width=1, lanes=1, group=1, row_vectors=0, rows_each=1)
    width = max(1, features.vector_width // (2 if real_type(dtype) == "double" else 1))
    while width > merged.length and width > 1:
        width //= 2
    rows_each = max(1, ceil_div(merged.count, _WORKERS * features.compute_units))
    if not persistent:
        rows_each = max(1, min(_CPU_ELEMENTS // merged.length, rows_each))
    return RowTile(width, lanes=1, group=1, row_vectors=0, rows_each=rows_each)


def _gpu_tile(
    runtime: Runtime,
    specs: Sequence[Spec],
    merged: StridedRows,
    cached: int,
    parameters: Sequence[InputSpec | None],
    boundary: int,
) -> RowTile:
    """Return a tile with one group per row, in aligned vectors if all operands allow it."""
    if not merged.contiguous:
        # Adjacent rows are then contiguous in memory, so adjacent work-items process them.
        return RowTile(width=1, lanes=1, group=_STRIDED_GROUP, row_vectors=0, rows_each=1)
    width = max(1, _TRANSACTION // specs[0].dtype.itemsize)
    distances = [boundary, *(stride for outer in merged.strides for stride in outer)]
    aligned = all(s.aligned for s in (*specs, *parameters) if isinstance(s, Spec))
    if aligned and all(distance % width == 0 for distance in distances):
        tile = _row_per_group(runtime, merged, cached, width)
        # Rows in registers consist of whole vectors.
        if merged.length % width == 0 or not tile.row_vectors:
            return tile
    return _row_per_group(runtime, merged, cached, 1)


def _row_per_group(runtime: Runtime, merged: StridedRows, cached: int, width: int) -> RowTile:
    """Return the tile with which groups of a GPU share contiguous rows, in vectors of `width` elements."""
    vectors = ceil_div(merged.length, width)
    tuning = runtime.tuning.choose(ROW_TUNING, f"{size_class(merged.count, merged.length)} {cached}", RowTuning())
    most = (tuning.registers if width > 1 else _SCALARS) // width // max(cached, 1)
    limit = min(runtime.features.max_group_size, 1024)
    shortest = max(_MIN_LANES, min(limit, filled(runtime.features, _MIN_LANES), power_of_two_at_least(vectors)))
    lanes = max(shortest, min(limit, power_of_two_at_least(ceil_div(vectors, max(most, 1)))))
    busy = tuning.busy * runtime.features.compute_units
    while lanes * 2 <= min(limit, vectors) and lanes * merged.count < busy:
        lanes *= 2
    row_vectors = ceil_div(vectors, lanes)
    if not cached or row_vectors > most:
        lanes, row_vectors = min(runtime.features.group_size, max(_MIN_LANES, lanes)), 0
    return RowTile(width, lanes, lanes, row_vectors, 1, aligned=width > 1)


def polynomial_exp(runtime: Runtime, dtype: DType) -> bool:
    """Return the definition POLYNOMIAL_EXP (see lib/exponential.h)."""
    return runtime.features.quirks.polynomial_exp and dtype is not dtypes.float64


def real_type(dtype: DType) -> str:
    """Return the C type in which a dtype is computed."""
    return type_name(register_class(dtype))
