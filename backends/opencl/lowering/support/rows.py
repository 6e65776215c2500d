"""Launches over rows: how the work-items of a device divide strided rows (see shaders/opencl/lib/rows.h)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from polyhal.backends.common.codegen.expressions import register_class
from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least
from polyhal.backends.common.launching.launch import Argument, Constant
from polyhal.backends.common.problems.rows import StridedRows, rows_along
from polyhal.backends.opencl.dialect import type_name
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.support.group_reduce import exchange
from polyhal.backends.opencl.lowering.support.prefetch import prefetch_distance
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.kernels.tuning import Family, size_class
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec


@dataclass(frozen=True, slots=True)
class RowShape:
    """A division of rows among work-items."""

    width: int
    """Elements per vector."""
    lanes: int
    """Work-items per row."""
    group: int
    """Work-items per group: `lanes`, or more if each has rows of its own."""
    row_vectors: int
    """Vectors of a row that each work-item keeps in registers; 0 if every pass reads the row again."""
    rows_each: int
    """Rows that a group processes in turn."""
    aligned: bool = False
    """Whether every vector is aligned to its size."""


_CPU_ELEMENTS = 16384
"""Elements per work-item of a CPU, about: enough to make its start cheap."""
_CPU_ITEMS_PER_UNIT = 4
"""Work-items per compute unit of a CPU, at least, to balance the load."""


@dataclass(frozen=True, slots=True)
class RowTuning:
    """How the work-items of a GPU divide rows."""

    registers: int = 32
    """Elements of all operands that a work-item keeps, at most."""
    busy: int = 256
    """Work-items that occupy a compute unit."""


ROW_TUNING = Family[RowTuning]("rows", {"registers": (16, 32, 64), "busy": (128, 256, 512, 1024)})
_SCALAR_REGISTERS = 16
"""The same as `registers` if elements are read one at a time."""
_MIN_LANES = 32
_TRANSACTION = 16
"""Bytes that a work-item of a GPU loads at once."""
_STRIDED_GROUP = 64
_SUM_ITEMS_PER_UNIT = 512
"""Work-items per compute unit of a GPU that reduces over rows."""


_STRIDES = ("0", "1", "2", "_step")
"""What STRIDES appends to the name of an operand."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Definitions, arguments and sizes of a launch over rows."""

    rows: int
    length: int
    definitions: dict[str, str | int | bool]
    parameters: tuple[Parameter, ...]
    """ROW_PARAMETERS and one STRIDES per operand."""
    items: tuple[int, ...]
    group: tuple[int, ...]
    numbers: Mapping[str, int]
    """ROW_PARAMETERS by name."""
    strides: tuple[tuple[int, int, int, int], ...]
    """STRIDES of each operand."""

    def args(self, *operands: str) -> dict[str, Argument]:
        """Return ROW_PARAMETERS and the STRIDES of the operands by their names in the kernel; "" skips one."""
        strides = zip(operands, self.strides, strict=True)
        return {**self.numbers, **{n + a: v for n, s in strides if n for a, v in zip(_STRIDES, s, strict=True)}}


def arrange(
    runtime: Runtime,
    specs: Sequence[Spec],
    axis: int,
    held: int = 0,
    shared: Sequence[InputSpec | None] = (),
    unit: int = 0,
    fewest: bool = False,
) -> Rows | Declined:
    """Divide the rows along `axis` of operands of equal shape; Declined if there are too many axes for lib/rows.h.

    A GPU keeps rows of the first `held` operands in registers if they fit. `shared` are operands of one row that are read with
    every row. With `unit`, no vector kept in registers crosses a multiple of it. With `fewest` there are only as many
    work-items as occupy the device, since each reduces over its rows.
    """
    rows = rows_along(specs, axis)
    if isinstance(rows, Declined):
        return rows
    dtype = specs[0].dtype
    shape = (
        _cpu_shape(runtime, dtype, rows, fewest)
        if runtime.features.cpu
        else _gpu_shape(runtime, specs, rows, held, shared, unit)
    )
    if fewest and shape.row_vectors:
        groups = max(1, _SUM_ITEMS_PER_UNIT // shape.lanes) * runtime.features.compute_units
        shape = replace(shape, rows_each=ceil_div(rows.count, groups))
    real = real_type(dtype)
    definitions: dict[str, str | int | bool] = {
        "DTYPE": dtype.name, "REAL": real, "WIDTH": shape.width, "ALIGNED": shape.aligned, "GROUP": shape.group,
        "LANES": shape.lanes, "ROW_VECTORS": shape.row_vectors,
        "FULL": shape.row_vectors * shape.lanes * shape.width == rows.length,
        "EXCHANGE": exchange(runtime, 8 if real == "double" else 4, shape.lanes, shape.group),
        "PREFETCH_DISTANCE": prefetch_distance(runtime),
        "POLYNOMIAL_EXP": polynomial_exp(runtime, dtype), "POLYNOMIAL_EXP_FAST": runtime.features.cpu and real == "float",
        "PTX_EXP_FAST": runtime.features.compute_capability > 0 and dtype.itemsize == 2,
        "PTX_BFLOAT16": runtime.features.tensor_cores,
    }  # fmt: skip
    numbers = {
        "rows": rows.count, "length": rows.length, "rows_each": shape.rows_each, "rows1": rows.outer[1], "rows2": rows.outer[2],
    }  # fmt: skip
    strides = tuple((*stride, step) for stride, step in zip(rows.strides, rows.steps, strict=True))
    parameters = [Constant(v, "ulong" if name == "rows" else "uint") for name, v in numbers.items()]
    parameters += [Constant(v, "long") for stride in strides for v in stride]
    items = ceil_div(rows.count, shape.rows_each) * shape.lanes
    return Rows(rows.count, rows.length, definitions, tuple(parameters), (items,), (shape.group,), numbers, strides)


def _cpu_shape(runtime: Runtime, dtype: DType, rows: StridedRows, fewest: bool) -> RowShape:
    """Divide rows on a CPU: several rows per work-item, in vectors no longer than a row."""
    features = runtime.features
    if not rows.contiguous:
        return RowShape(width=1, lanes=1, group=1, row_vectors=0, rows_each=1)
    width = max(1, features.vector_width // (2 if real_type(dtype) == "double" else 1))
    while width > rows.length and width > 1:
        width //= 2
    each = max(1, ceil_div(rows.count, _CPU_ITEMS_PER_UNIT * features.compute_units))
    if not fewest:
        each = max(1, min(_CPU_ELEMENTS // rows.length, each))
    return RowShape(width, lanes=1, group=1, row_vectors=0, rows_each=each)


def _gpu_shape(
    runtime: Runtime,
    specs: Sequence[Spec],
    rows: StridedRows,
    held: int,
    shared: Sequence[InputSpec | None],
    unit: int,
) -> RowShape:
    """Divide rows on a GPU: a group per row if it is contiguous, kept in registers if they suffice."""
    if not rows.contiguous:
        # Neighbouring rows are then contiguous, and so are the loads of neighbouring work-items.
        return RowShape(width=1, lanes=1, group=_STRIDED_GROUP, row_vectors=0, rows_each=1)
    width = max(1, _TRANSACTION // specs[0].dtype.itemsize)
    steps = [unit, *(t for stride in rows.strides for t in stride)]
    if all(s.aligned for s in (*specs, *shared) if isinstance(s, Spec)) and all(t % width == 0 for t in steps):
        shape = _group_per_row(runtime, rows, held, width)
        # Only whole vectors can be kept in registers.
        if rows.length % width == 0 or not shape.row_vectors:
            return shape
    return _group_per_row(runtime, rows, held, 1)


def _group_per_row(runtime: Runtime, rows: StridedRows, held: int, width: int) -> RowShape:
    """Divide contiguous rows among groups of a GPU, in vectors of `width` elements."""
    vectors = ceil_div(rows.length, width)
    tuning = runtime.tuning.choose(ROW_TUNING, f"{size_class(rows.count, rows.length)} {held}", RowTuning())
    max_vectors = (tuning.registers if width > 1 else _SCALAR_REGISTERS) // width // max(held, 1)
    limit = min(runtime.features.max_group_size, 1024)
    lanes = max(_MIN_LANES, min(limit, power_of_two_at_least(ceil_div(vectors, max(max_vectors, 1)))))
    busy = tuning.busy * runtime.features.compute_units
    while lanes * 2 <= min(limit, vectors) and lanes * rows.count < busy:
        lanes *= 2
    row_vectors = ceil_div(vectors, lanes)
    if not held or row_vectors > max_vectors:
        lanes, row_vectors = min(runtime.features.group_size, max(_MIN_LANES, lanes)), 0
    return RowShape(width, lanes, lanes, row_vectors, 1, aligned=width > 1)


def polynomial_exp(runtime: Runtime, dtype: DType) -> bool:
    """Return the definition POLYNOMIAL_EXP (see lib/exponential.h)."""
    return runtime.features.quirks.polynomial_exp and dtype is not dtypes.float64


def real_type(dtype: DType) -> str:
    """Return the OpenCL C type in which a dtype is computed."""
    return type_name(register_class(dtype))
