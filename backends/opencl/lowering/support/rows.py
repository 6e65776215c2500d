"""Launches over rows: operands walked along one axis, with the other axes numbered (see shaders/opencl/lib/rows.h)."""

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
from polyhal.backends.opencl.lowering.support.prefetch import ahead
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.kernels.tuning import Family, size_class
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec


@dataclass(frozen=True, slots=True)
class RowShape:
    """How rows are divided among work-items."""

    width: int
    """Elements that are read at once."""
    lanes: int
    """Work-items that share a row."""
    group: int
    """Work-items in a group: `lanes`, or more where each has rows of its own."""
    held: int
    """Vectors of a row that each work-item keeps in registers; 0 where every pass reads the row again."""
    each: int
    """Rows that a group takes one after the other."""
    aligned: bool = False
    """Every vector lies at a multiple of its size."""


_ELEMENTS_EACH = 16384
"""A CPU's work-item takes rows of about so many elements together, so that starting it costs little."""
_WORKERS = 4
"""Work-items per compute unit of a CPU, so that none waits long for another."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """How the work-items of a GPU share rows."""

    registers: int = 32
    """Elements, of all operands together, that a work-item keeps."""
    busy: int = 256
    """Work-items that a compute unit should have at least."""


SHARING = Family[Sharing]("rows", {"registers": (16, 32, 64), "busy": (128, 256, 512, 1024)})
_SCALARS = 16
"""The same where they are read one at a time."""
_LEAST_LANES = 32
_TRANSACTION = 16
"""Bytes that a work-item of a GPU moves at once."""
_STRIDED_GROUP = 64
_SUMMING = 512
"""Work-items per compute unit of a GPU that sum over rows."""


_STRIDES = ("0", "1", "2", "_step")
"""What STRIDES appends to the name of an operand."""


@dataclass(frozen=True, slots=True)
class Rows:
    """How a kernel over rows is compiled and launched."""

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
        """ROW_PARAMETERS, and the STRIDES of all operands, which the kernel calls so; "" leaves one out."""
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
    """Rows along `axis` of operands of equal shape, of which a GPU keeps the first `held` in registers where they fit there.

    `shared` are operands of one row that are read along with every row. No vector that is held crosses a multiple of `unit`.
    With `fewest`, there are no more work-items than keep a CPU, or a GPU that keeps rows, busy: they sum over their rows.
    """
    found = rows_along(specs, axis)
    if isinstance(found, Declined):
        return found
    dtype = specs[0].dtype
    shape = (
        _cpu_shape(runtime, dtype, found, fewest)
        if runtime.features.cpu
        else _gpu_shape(runtime, specs, found, held, shared, unit)
    )
    if fewest and shape.held:
        groups = max(1, _SUMMING // shape.lanes) * runtime.features.compute_units
        shape = replace(shape, each=ceil_div(found.count, groups))
    real = real_type(dtype)
    definitions: dict[str, str | int | bool] = {
        "DTYPE": dtype.name, "REAL": real, "WIDTH": shape.width, "ALIGNED": shape.aligned, "GROUP": shape.group,
        "LANES": shape.lanes, "ROW_VECTORS": shape.held, "FULL": shape.held * shape.lanes * shape.width == found.length,
        "EXCHANGE": exchange(runtime, 8 if real == "double" else 4, shape.lanes, shape.group),
        "PREFETCH_DISTANCE": ahead(runtime),
        "POLYNOMIAL_EXP": own_exp(runtime, dtype), "POLYNOMIAL_EXP_FAST": runtime.features.cpu and real == "float",
        "PTX_EXP_FAST": runtime.features.compute_capability > 0 and dtype.itemsize == 2,
        "PTX_BFLOAT16": runtime.features.tensor_cores,
    }  # fmt: skip
    numbers = {
        "rows": found.count, "length": found.length, "rows_each": shape.each, "rows1": found.outer[1], "rows2": found.outer[2],
    }  # fmt: skip
    strides = tuple((*stride, step) for stride, step in zip(found.strides, found.steps, strict=True))
    parameters = [Constant(v, "ulong" if name == "rows" else "uint") for name, v in numbers.items()]
    parameters += [Constant(v, "long") for stride in strides for v in stride]
    items = ceil_div(found.count, shape.each) * shape.lanes
    return Rows(found.count, found.length, definitions, tuple(parameters), (items,), (shape.group,), numbers, strides)


def _cpu_shape(runtime: Runtime, dtype: DType, found: StridedRows, fewest: bool) -> RowShape:
    """Some rows for each work-item, in vectors as wide as fit in one."""
    features = runtime.features
    if not found.contiguous:
        return RowShape(width=1, lanes=1, group=1, held=0, each=1)
    width = max(1, features.vector_width // (2 if real_type(dtype) == "double" else 1))
    while width > found.length and width > 1:
        width //= 2
    each = max(1, ceil_div(found.count, _WORKERS * features.compute_units))
    if not fewest:
        each = max(1, min(_ELEMENTS_EACH // found.length, each))
    return RowShape(width, lanes=1, group=1, held=0, each=each)


def _gpu_shape(
    runtime: Runtime,
    specs: Sequence[Spec],
    found: StridedRows,
    held: int,
    shared: Sequence[InputSpec | None],
    unit: int,
) -> RowShape:
    """A group for each row, each of whose work-items keeps `held` shares of it if they are small enough."""
    if not found.contiguous:
        # Neighbouring rows are then neighbours in memory, as neighbouring work-items are.
        return RowShape(width=1, lanes=1, group=_STRIDED_GROUP, held=0, each=1)
    width = max(1, _TRANSACTION // specs[0].dtype.itemsize)
    steps = [unit, *(t for stride in found.strides for t in stride)]
    if all(s.aligned for s in (*specs, *shared) if isinstance(s, Spec)) and all(t % width == 0 for t in steps):
        shape = _shared_rows(runtime, found, held, width)
        # What is held is whole vectors.
        if found.length % width == 0 or not shape.held:
            return shape
    return _shared_rows(runtime, found, held, 1)


def _shared_rows(runtime: Runtime, found: StridedRows, held: int, width: int) -> RowShape:
    """How groups of a GPU share contiguous rows in vectors of so many elements."""
    vectors = ceil_div(found.length, width)
    sharing = runtime.tuning.choose(SHARING, f"{size_class(found.count, found.length)} {held}", Sharing())
    most = (sharing.registers if width > 1 else _SCALARS) // width // max(held, 1)
    limit = min(runtime.features.max_group_size, 1024)
    lanes = max(_LEAST_LANES, min(limit, power_of_two_at_least(ceil_div(vectors, max(most, 1)))))
    busy = sharing.busy * runtime.features.compute_units
    while lanes * 2 <= min(limit, vectors) and lanes * found.count < busy:
        lanes *= 2
    kept = ceil_div(vectors, lanes)
    if not held or kept > most:
        lanes, kept = min(runtime.features.group_size, max(_LEAST_LANES, lanes)), 0
    return RowShape(width, lanes, lanes, kept, 1, aligned=width > 1)


def own_exp(runtime: Runtime, dtype: DType) -> bool:
    """Return the definition POLYNOMIAL_EXP (see lib/exponential.h)."""
    return runtime.features.quirks.polynomial_exp and dtype is not dtypes.float64


def real_type(dtype: DType) -> str:
    """The C type in which a dtype is computed."""
    return type_name(register_class(dtype))
