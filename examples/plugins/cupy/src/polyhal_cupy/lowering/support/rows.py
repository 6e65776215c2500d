"""Launches over rows: operands traversed along one axis, with the other axes flattened (see kernels/lib/rows.cuh)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least
from polyhal.backends.common.launching.launch import Argument
from polyhal.backends.common.problems.rows import StridedRows, rows_along
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined
from polyhal_cupy.dialect import type_name

_WARP = 32
_BLOCK = 128
_LARGEST_BLOCK = 1024
_HELD, _MOST_HELD = 16, 32
"""Elements of a row per thread kept in registers: preferred, for high occupancy, and maximum."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Definitions and launch parameters of a kernel over rows."""

    merged: StridedRows
    width: int
    """Elements per load and store."""
    definitions: dict[str, str | int | bool]
    blocks: int
    threads: int

    @property
    def count(self) -> int:
        return self.merged.count

    @property
    def length(self) -> int:
        return self.merged.length

    def args(self, *operands: str) -> dict[str, Argument]:
        """Return ROW_PARAMETERS and the STRIDES of the operands with these names in the kernel."""
        rows = self.merged
        args: dict[str, Argument] = {
            "rows": rows.count, "length": rows.length, "outer1": rows.outer[1], "outer2": rows.outer[2]
        }  # fmt: skip
        for name, (outer0, outer1, outer2), step in zip(operands, rows.strides, rows.steps, strict=True):
            args |= {f"{name}_outer0": outer0, f"{name}_outer1": outer1, f"{name}_outer2": outer2, f"{name}_step": step}
        return args


def real_type(dtype: DType) -> str:
    """Return the type of the registers in which a kernel computes elements of a float dtype."""
    return type_name("double" if dtype is dtypes.float64 else "float")


def arrange(specs: Sequence[Spec], axis: int) -> Rows | Declined:
    """Arrange rows along `axis` of operands of equal shape. Vectors are used if they are whole and aligned in all operands."""
    found = rows_along(specs, axis)
    if isinstance(found, Declined):
        return found
    if max(found.outer) >= 1 << 31:
        return Declined("an axis is longer than 2^31")
    width = min(8, 16 // max(s.dtype.itemsize for s in specs))
    aligned = all(s.aligned for s in specs) and not any(t % width for s in found.strides for t in s)
    if not found.contiguous or found.length % width or not aligned:
        width = 1
    group, block, vectors = _group(found.length, width) if found.contiguous else (1, _BLOCK, 0)
    definitions: dict[str, str | int | bool] = {
        "DTYPE": specs[0].dtype.name, "REAL": real_type(specs[0].dtype), "WIDTH": width, "VECTORS": vectors, "GROUP": group,
        "BLOCK": block,
    }  # fmt: skip
    blocks = ceil_div(found.count, block // group)
    return Rows(found, width, definitions, blocks, block)


def _group(length: int, width: int) -> tuple[int, int, int]:
    """Return threads per row, threads per block, and vectors per thread: 0 if a row does not fit in registers.

    There are few distinct values, so that few programs are built.
    """
    packs = ceil_div(length, width)
    each = _HELD // width
    if packs <= _WARP * each:
        return _WARP, _BLOCK, power_of_two_at_least(ceil_div(packs, _WARP))
    group = min(_LARGEST_BLOCK, max(_BLOCK, power_of_two_at_least(ceil_div(packs, each))))
    vectors = power_of_two_at_least(ceil_div(packs, group))
    return group, group, vectors if vectors * width <= _MOST_HELD else 0
