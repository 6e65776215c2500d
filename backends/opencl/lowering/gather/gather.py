"""Rows picked by index, and elements along an axis picked and added: in a fixed order, or atomically on GPUs if that may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Constant, LaunchSequence, Number, Tensor
from polyhal.backends.common.problems.gather import flat_stride, outer_axis_inner
from polyhal.backends.common.problems.multi_tensor import copy_unless_aliased
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.gather import scatter_add
from polyhal.backends.opencl.lowering.pointwise import copy
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

Inputs = tuple[InputSpec | None, ...]

_ELEMENTS = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong", 16: "uint4"}


@dataclass(frozen=True, slots=True)
class Gathering:
    """How rows are dealt out."""

    row_elements: int = 4096
    """Elements that a work-item of a CPU copies at least, in whole rows."""
    loads: int = 4
    """Loads that a work-item of a GPU has under way."""


_GATHERING = Gathering()


def _gather(runtime: Runtime, index: Spec, x: Spec, out: Spec, places: tuple[int, int, int]) -> Launch | Declined:
    step = flat_stride(index)
    if step is None:
        return Declined("the index is not evenly spaced")
    count, (rows, width), (row_step, column_step) = index.size, x.shape, x.strides
    if max(count, width) >= 1 << 31:
        return Declined("an axis is longer than 2^31")
    nbytes, aligned, column_step = x.dtype.itemsize, x.aligned and out.aligned, column_step if width > 1 else 1
    cpu = runtime.features.cpu
    if not cpu and aligned and column_step == 1:
        # Bytes that divide a row and the distance between rows can move together.
        while nbytes < 16 and width % 2 == 0 and row_step % 2 == 0:
            nbytes, width, row_step = nbytes * 2, width // 2, row_step // 2
    each = max(1, min(_GATHERING.row_elements // width, ceil_div(count, 4 * runtime.features.compute_units)))
    parameters: list[Parameter] = [
        *(Tensor(i) for i in places),
        Constant(count, "uint"), Constant(width, "uint"), Constant(rows, "ulong"), Constant(each, "uint"),
        Constant(step, "long"), Constant(row_step, "long"), Constant(column_step, "long"),
    ]  # fmt: skip
    definitions: dict[str, str | int | bool] = {
        "INDEX_DTYPE": index.dtype.name, "ELEMENT": _ELEMENTS[nbytes], "EACH_ROW": cpu, "EACH": _GATHERING.loads,
        "UNITS": nbytes // x.dtype.itemsize,
    }  # fmt: skip
    items = ceil_div(count, each) if cpu else ceil_div(count * width, _GATHERING.loads)
    group = 1 if cpu else runtime.features.group_size
    return runtime.launch("gather", "gather/gather", definitions, parameters, (items,), (group,))


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


def _along(
    runtime: Runtime, name: str, data: Spec, index: Spec, out: Spec, axis: int, length: int, items: int,
    definitions: Mapping[str, str | int | bool], kernel: str = "",
) -> Launch | Declined:  # fmt: skip
    source, positions = outer_axis_inner(data, axis), outer_axis_inner(index, axis)
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
    group = runtime.features.group_size
    return runtime.launch(name, "gather/along_axis", definitions, parameters, (items,), (group,), kernel=kernel or name)


def _take_along_axis(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    x, index = inputs
    (out,) = outputs
    if not isinstance(x, Spec) or not isinstance(index, Spec):
        return Declined("an operand is a number")
    axis = params["axis"]
    # Elements that are only moved need no arithmetic type.
    dtype = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}[out.dtype.itemsize]
    definitions = {"DTYPE": dtype, "INDEX_DTYPE": index.dtype.name}
    return _along(runtime, "take_along_axis", x, index, out, axis, x.shape[axis], out.size, definitions)


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
    name, length = "scatter_along_axis", params["length"]
    definitions: dict[str, str | int | bool]
    if not runtime.features.cpu and not params["deterministic"] and out.dtype in scatter_add.ATOMIC:
        definitions = {**scatter_add.atomic_definitions(runtime, index.dtype, out.dtype), "ATOMIC": True}
        launch = _along(runtime, name, src, index, out, axis, length, index.size, definitions, "scatter_atomically")
    else:
        definitions = {"DTYPE": out.dtype.name, "INDEX_DTYPE": index.dtype.name}
        lines = index.size // index.shape[axis]
        launch = _along(runtime, name, src, index, out, axis, length, lines, definitions)
    return launch if isinstance(launch, Declined) else scatter_add.after_zeros(runtime, name, out, 2, launch)


def _store_rows(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    x, value, _ = inputs
    (out,) = outputs
    if not isinstance(x, Spec) or not isinstance(value, Spec) or value.dtype is not x.dtype:
        return Declined("rows of another dtype")
    if value.ndim > 4 or max(out.size, value.size) >= 1 << 31:
        return Declined("more than 4 axes, or 2^31 elements and more")
    outer, inner, row, step = (0,) * (4 - value.ndim) + value.strides
    rows, width = value.shape[-2:]
    parameters: list[Parameter] = [
        Tensor(1), Tensor(3), Number(2, "int"),
        *[Constant(v, "uint") for v in (value.size, rows, width, x.shape[-2], value.shape[-3] if value.ndim > 2 else 1)],
        *[Constant(v, "long") for v in (outer, inner, row, step)],
    ]  # fmt: skip
    group = runtime.features.group_size
    definitions: dict[str, str | int | bool] = {"ELEMENT": _ELEMENTS[x.dtype.itemsize]}
    store = runtime.launch("store_rows", "gather/store_rows", definitions, parameters, (value.size,), (group,))
    settled = copy_unless_aliased(copy.copy, runtime, [(0, 0)], inputs, outputs)
    return LaunchSequence("store_rows", (settled, store))


LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {
    "store_rows": _store_rows,
    "embedding": _embedding,
    "scatter_rows": scatter_add.scatter_rows,
    "take_along_axis": _take_along_axis,
    "scatter_along_axis": _scatter_along_axis,
}
