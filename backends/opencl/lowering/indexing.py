"""Rows picked and added by index, and elements along an axis. Additions run in a fixed order, without atomics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from polyhal.backends.common.geometry import ceil_div, round_up
from polyhal.backends.common.indexing import line_step, step_of_rows, thirds
from polyhal.backends.common.launch import Constant, LaunchSequence, Tensor
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering import movement
from polyhal.backends.opencl.lowering.rows import real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

Inputs = tuple[InputSpec | None, ...]

_ELEMENTS = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}
_ELEMENTS_EACH = 4096
_COLUMN_SPAN = 64
_ROW_GROUP = 32
_SCATTER_GROUP = 128


def _gather(runtime: Runtime, index: Spec, x: Spec, places: tuple[int, int, int]) -> Launch | Declined:
    step = line_step(index)
    if step is None:
        return Declined("the index is not evenly spaced")
    count, width = index.size, x.shape[1]
    if max(count, width) >= 1 << 31:
        return Declined("an axis is longer than 2^31")
    if runtime.features.cpu:
        each = max(1, min(_ELEMENTS_EACH // width, ceil_div(count, 4 * runtime.features.compute_units)))
        across = 1
    else:
        each, across = 1, round_up(min(width, runtime.features.group_size), _ROW_GROUP)
    parameters: list[Parameter] = [
        *(Tensor(i) for i in places),
        Constant(count, "uint"),
        Constant(width, "uint"),
        Constant(x.shape[0], "ulong"),
        Constant(each, "uint"),
        Constant(step, "long"),
        Constant(x.strides[0], "long"),
        Constant(x.strides[1] if width > 1 else 1, "long"),
    ]
    definitions: dict[str, str | int | bool] = {"INDEX_DTYPE": index.dtype.name, "ELEMENT": _ELEMENTS[x.dtype.itemsize]}
    group = (1, 1) if runtime.features.cpu else (_ROW_GROUP, 1)
    return runtime.launch("gather", "gather", definitions, parameters, (across, ceil_div(count, each)), group)


def gather(runtime: Runtime, index: Spec, x: Spec, out: Spec) -> Launch:
    """A launch (index, x, out): rows of `x`, zeros where an index is out of range. All contiguous."""
    launch = _gather(runtime, index, x, (0, 1, 2))
    assert not isinstance(launch, Declined)
    return launch


def _scatter(
    runtime: Runtime, index: Spec, source: tuple[int, int, int, int], out: Spec, places: tuple[int, int, int]
) -> Launch | Declined:
    """`source` is (count, width, row stride, column stride)."""
    step = line_step(index)
    if step is None:
        return Declined("the index is not evenly spaced")
    count, width, row_step, column_step = source
    if max(count, width) >= 1 << 31:
        return Declined("an axis is longer than 2^31")
    cpu = runtime.features.cpu
    span = _COLUMN_SPAN
    while cpu and span > 16 and ceil_div(width, span) < 2 * runtime.features.compute_units:
        span //= 2
    definitions: dict[str, str | int | bool] = {
        "DTYPE": out.dtype.name,
        "INDEX_DTYPE": index.dtype.name,
        "REAL": real_type(out.dtype),
        "BY_COLUMNS": cpu,
        "GROUP": _SCATTER_GROUP,
    }
    parameters: list[Parameter] = [
        *(Tensor(i) for i in places),
        Constant(count, "uint"),
        Constant(width, "uint"),
        Constant(out.shape[0], "ulong"),
        Constant(span, "uint"),
        Constant(step, "long"),
        Constant(row_step, "long"),
        Constant(column_step, "long"),
    ]
    items = (ceil_div(width, span), 1) if cpu else (round_up(width, _SCATTER_GROUP), count)
    return runtime.launch(
        "scatter_add", "scatter_add", definitions, parameters, items, (1, 1) if cpu else (_SCATTER_GROUP, 1)
    )


def scatter_add(runtime: Runtime, index: Spec, source: Spec, out: Spec) -> Launch:
    """A launch (index, source, out) that adds rows, in the order of the index. All contiguous."""
    launch = _scatter(runtime, index, (*source.shape, *source.strides), out, (0, 1, 2))  # type: ignore[arg-type]
    assert not isinstance(launch, Declined)
    return launch


def _after_zeros(runtime: Runtime, name: str, out: Spec, place: int, launch: Launch) -> Launch:
    zero = movement.fill(runtime, out)
    return LaunchSequence(name, (lambda *args: zero(0, args[place]), launch))


def _embedding(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    weight, index = inputs
    if not isinstance(weight, Spec) or not isinstance(index, Spec):
        return Declined("an operand is a number")
    return _gather(runtime, index, weight, (1, 0, 2))


def _scatter_rows(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    src, index = inputs
    (out,) = outputs
    if not isinstance(src, Spec) or not isinstance(index, Spec):
        return Declined("an operand is a number")
    if runtime.features.cpu and out.dtype.is_floating_point and out.dtype.itemsize < 4:
        return Declined(f"sums of {out.dtype.name} would be rounded at every step")
    step = step_of_rows(src)
    if step is None:
        return Declined("the rows of the source are not evenly spaced")
    width = src.shape[-1]
    launch = _scatter(runtime, index, (index.size, width, step, src.strides[-1] if width > 1 else 1), out, (1, 0, 2))
    return launch if isinstance(launch, Declined) else _after_zeros(runtime, "scatter_rows", out, 2, launch)


def _along(
    runtime: Runtime, name: str, data: Spec, index: Spec, out: Spec, axis: int, length: int, items: int
) -> Launch | Declined:
    source, positions = thirds(data, axis), thirds(index, axis)
    if source is None or positions is None:
        return Declined("the axes beside the indexed one cannot be merged")
    data_steps = source[1]
    (_, picked, inner), index_steps = positions
    parameters: list[Parameter] = [
        Tensor(0),
        Tensor(1),
        Tensor(2),
        Constant(items, "ulong"),
        Constant(picked, "ulong"),
        Constant(inner, "ulong"),
        Constant(length, "long"),
        *(Constant(v, "long") for v in (*data_steps, *index_steps)),
    ]
    # Elements that are only moved need no arithmetic type.
    dtype = (
        {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}[out.dtype.itemsize]
        if name.startswith("take")
        else out.dtype.name
    )
    definitions: dict[str, str | int | bool] = {"DTYPE": dtype, "INDEX_DTYPE": index.dtype.name}
    group = runtime.features.group_size
    return runtime.launch(name, "along_axis", definitions, parameters, (items,), (group,), kernel=name)


def _take_along_axis(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    x, index = inputs
    (out,) = outputs
    if not isinstance(x, Spec) or not isinstance(index, Spec):
        return Declined("an operand is a number")
    axis = params["axis"]
    return _along(runtime, "take_along_axis", x, index, out, axis, x.shape[axis], out.size)


def _scatter_along_axis(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    src, index = inputs
    (out,) = outputs
    if not isinstance(src, Spec) or not isinstance(index, Spec):
        return Declined("an operand is a number")
    axis = params["axis"]
    if out.dtype.is_floating_point and out.dtype.itemsize < 4 and index.shape[axis] > 1:
        return Declined(f"sums of {out.dtype.name} would be rounded at every step")
    lines = math.prod(index.shape) // index.shape[axis]
    launch = _along(runtime, "scatter_along_axis", src, index, out, axis, params["length"], lines)
    return launch if isinstance(launch, Declined) else _after_zeros(runtime, "scatter_along_axis", out, 2, launch)


LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {
    "embedding": _embedding,
    "scatter_rows": _scatter_rows,
    "take_along_axis": _take_along_axis,
    "scatter_along_axis": _scatter_along_axis,
}
