"""Launches over rows: operands walked along one axis, with the other axes numbered (see kernels/rows.cuh)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least
from polyhal.backends.common.launching.launch import Constant, ScalarType
from polyhal.backends.common.problems.rows import rows_along
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined
from polyhal_cupy.dialect import type_name
from polyhal_cupy.launch import Parameter, longs, uints, ulongs

_WARP = 32
_BLOCK = 128
_LARGEST_BLOCK = 1024
_HELD, _MOST_HELD = 16, 32
"""Elements of a row that a thread keeps in registers: as many as leave room for other warps, and at most."""


@dataclass(frozen=True, slots=True)
class Rows:
    """How a kernel over rows is compiled and launched."""

    count: int
    length: int
    width: int
    """Elements per load and store."""
    definitions: dict[str, str | int | bool]
    parameters: tuple[Parameter, ...]
    """ROW_PARAMETERS and one STRIDES per operand."""
    blocks: int
    threads: int


def real_class(dtype: DType) -> ScalarType:
    """The class of registers in which a float dtype is computed."""
    return "double" if dtype is dtypes.float64 else "float"


def real_type(dtype: DType) -> str:
    """The type of such registers in a kernel."""
    return type_name(real_class(dtype))


def real(value: float, dtype: DType) -> Constant:
    """A constant beside elements of `dtype`."""
    return Constant(value, real_class(dtype))


def arrange(specs: Sequence[Spec], axis: int) -> Rows | Declined:
    """Rows along `axis` of operands of equal shape. Vectors are used where they are whole and aligned in all of them."""
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
    parameters = [*ulongs(found.count), *uints(found.length, *found.outer[1:])]
    for stride, step in zip(found.strides, found.steps, strict=True):
        parameters += longs(*stride, step)
    blocks = ceil_div(found.count, block // group)
    return Rows(found.count, found.length, width, definitions, tuple(parameters), blocks, block)


def _group(length: int, width: int) -> tuple[int, int, int]:
    """Threads per row, threads per block and vectors per thread, 0 where a row does not fit in registers.

    Few distinct values, so that few programs are built.
    """
    packs = ceil_div(length, width)
    each = _HELD // width
    if packs <= _WARP * each:
        return _WARP, _BLOCK, power_of_two_at_least(ceil_div(packs, _WARP))
    group = min(_LARGEST_BLOCK, max(_BLOCK, power_of_two_at_least(ceil_div(packs, each))))
    vectors = power_of_two_at_least(ceil_div(packs, group))
    return group, group, vectors if vectors * width <= _MOST_HELD else 0
