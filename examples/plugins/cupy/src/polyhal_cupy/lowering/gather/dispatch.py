"""Rows picked and added by index, and elements along an axis. Additions are atomic where CUDA has them for the type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import LaunchSequence
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.gather import flat_stride, outer_axis_inner, row_stride
from polyhal.backends.common.problems.norm import Inputs
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch
from polyhal_cupy.launch import KernelLaunch, longs, pointers, uints, ulongs
from polyhal_cupy.lowering.pointwise import copy
from polyhal_cupy.runtime import Runtime

_BLOCK = 256
_UNITS = (16, 8, 4, 2, 1)
_ATOMIC: dict[DType, str] = {
    dtypes.float32: "float32", dtypes.float64: "float64", dtypes.int32: "int32", dtypes.uint32: "uint32",
    dtypes.int64: "uint64", dtypes.uint64: "uint64",
}  # fmt: skip
"""Types with an atomic addition, and the type that has it."""
_NUMBER = Declined("an operand is a number")


def _gather(runtime: Runtime, index: Spec, x: Spec, out: Spec, places: tuple[int, int, int]) -> KernelLaunch | Declined:
    step = flat_stride(index)
    if step is None:
        return Declined("the index is not evenly spaced")
    size = x.dtype.itemsize
    width, row, column = x.shape[1], x.strides[0], x.strides[1] if x.shape[1] > 1 else 1
    if width >= 1 << 31:
        return Declined("an axis is longer than 2^31")
    unit = size
    if column == 1 and x.aligned and out.aligned:
        unit = next(u for u in _UNITS if u == size or (u > size and width * size % u == 0 == row * size % u))
    per_unit = unit // size
    items = index.size * (width // per_unit)
    parameters = [
        *pointers(*places), *ulongs(items), *uints(width // per_unit), *ulongs(x.shape[0]),
        *longs(step, row // per_unit, column),
    ]  # fmt: skip
    definitions: dict[str, str | int | bool] = {"INDEX_DTYPE": index.dtype.name, "UNIT_BYTES": unit, "BLOCK": _BLOCK}
    return runtime.launch("gather", "gather/gather", definitions, parameters, ceil_div(items, _BLOCK), _BLOCK)


def gather(runtime: Runtime, index: Spec, x: Spec, out: Spec) -> Launch:
    """A launch (index, x, out): rows of `x`, zeros where an index is out of range. All contiguous."""
    launch = _gather(runtime, index, x, out, (0, 1, 2))
    assert not isinstance(launch, Declined)
    return launch


def _scatter(
    runtime: Runtime, index: Spec, source: tuple[int, int, int, int], out: Spec, places: tuple[int, int, int]
) -> KernelLaunch | Declined:
    """`source` is (count, width, row stride, column stride)."""
    step = flat_stride(index)
    if step is None:
        return Declined("the index is not evenly spaced")
    count, width, row_step, column_step = source
    if width >= 1 << 31:
        return Declined("an axis is longer than 2^31")
    atomic = _ATOMIC.get(out.dtype)
    items = count * width
    parameters = [
        *pointers(*places), *ulongs(items), *uints(width), *ulongs(out.shape[0]), *longs(step, row_step, column_step)
    ]  # fmt: skip
    definitions: dict[str, str | int | bool] = {
        "DTYPE": out.dtype.name, "INDEX_DTYPE": index.dtype.name, "BLOCK": _BLOCK
    }  # fmt: skip
    if atomic:
        definitions["ATOMIC"] = atomic
    kernel = "scatter_add" if atomic else "scatter_ordered"
    blocks = ceil_div(items if atomic else width, _BLOCK)
    return runtime.launch("scatter_add", "gather/scatter_add", definitions, parameters, blocks, _BLOCK, kernel=kernel)


def scatter_add(runtime: Runtime, index: Spec, source: Spec, out: Spec) -> Launch:
    """A launch (index, source, out) that adds rows. All contiguous."""
    count, width = source.shape
    launch = _scatter(runtime, index, (count, width, width, 1), out, (0, 1, 2))
    assert not isinstance(launch, Declined)
    return launch


def _after_zeros(runtime: Runtime, out: Spec, place: int, launch: KernelLaunch) -> Launch:
    return LaunchSequence(launch.name, (copy.zero(runtime, out, place), launch))


def _embedding(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    weight, index = inputs
    if not isinstance(weight, Spec) or not isinstance(index, Spec):
        return _NUMBER
    return _gather(runtime, index, weight, outputs[0], (1, 0, 2))


def _scatter_rows(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    src, index = inputs
    (out,) = outputs
    if not isinstance(src, Spec) or not isinstance(index, Spec):
        return _NUMBER
    if out.dtype not in _ATOMIC:
        return Declined(f"sums of {out.dtype.name} would be rounded at every step")
    row = row_stride(src)
    if row is None:
        return Declined("the rows are not evenly spaced")
    launch = _scatter(runtime, index, (index.size, src.shape[-1], row, src.strides[-1]), out, (1, 0, 2))
    return launch if isinstance(launch, Declined) else _after_zeros(runtime, out, 2, launch)


def _along(runtime: Runtime, name: str, data: Spec, index: Spec, axis: int, length: int) -> KernelLaunch | Declined:
    source, positions = outer_axis_inner(data, axis), outer_axis_inner(index, axis)
    if source is None or positions is None:
        return Declined("the axes beside the indexed one cannot be merged")
    (_, picked, inner), index_steps = positions
    items = math.prod(index.shape)
    parameters = [*pointers(0, 1, 2), *ulongs(items, picked, inner), *longs(length, *source[1], *index_steps)]
    definitions: dict[str, str | int | bool] = {
        "DTYPE": data.dtype.name, "INDEX_DTYPE": index.dtype.name, "BLOCK": _BLOCK
    }  # fmt: skip
    if data.dtype in _ATOMIC:
        definitions["ATOMIC"] = _ATOMIC[data.dtype]
    return runtime.launch(
        name, "gather/along_axis", definitions, parameters, ceil_div(items, _BLOCK), _BLOCK, kernel=name
    )


def _take_along_axis(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    x, index = inputs
    if not isinstance(x, Spec) or not isinstance(index, Spec):
        return _NUMBER
    axis = params["axis"]
    return _along(runtime, "take_along_axis", x, index, axis, x.shape[axis])


def _scatter_along_axis(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    src, index = inputs
    (out,) = outputs
    if not isinstance(src, Spec) or not isinstance(index, Spec):
        return _NUMBER
    if out.dtype not in _ATOMIC:
        return Declined(f"sums of {out.dtype.name} would be rounded at every step")
    launch = _along(runtime, "scatter_along_axis", src, index, params["axis"], params["length"])
    return launch if isinstance(launch, Declined) else _after_zeros(runtime, out, 2, launch)


LOWERINGS: dict[str, LoweringFunction] = {
    "embedding": _embedding,
    "scatter_rows": _scatter_rows,
    "take_along_axis": _take_along_axis,
    "scatter_along_axis": _scatter_along_axis,
}
