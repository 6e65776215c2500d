"""Gather and scatter-add along an axis by index; sums are in index order and without atomics on floats.

Kernels: shaders/wgsl/gather/take_along_axis.wgsl and scatter_along_axis.wgsl.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Tensor, after_zeros
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.gather import outer_axis_inner
from polyhal.backends.wgpu.lowering.gather.gather import Inputs
from polyhal.backends.wgpu.lowering.gather.scatter_add import (
    RowSums,
    add_rows,
    is_half,
    within_loop_limit,
)
from polyhal.backends.wgpu.lowering.pointwise import copy
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.protocol import Declined, InputSpec, Launch, SimpleLaunch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_AXES = ("outer", "axis", "inner")
_BASE, _SUMS = 2, 3
"""Argument positions of the base to add to and of the result; data and index come first."""


def _geometry(name: str, data: Spec, index: Spec, axis: int, length: int) -> dict[str, int] | None:
    """Return the arguments for lengths and strides of the data, the buffer `name`, and of the index.

    None if the axes before or after the indexed one cannot be merged.
    """
    merged_data, merged_index = outer_axis_inner(data, axis), outer_axis_inner(index, axis)
    if merged_data is None or merged_index is None:
        return None
    _, data_strides = merged_data
    (_, index_length, inner), index_strides = merged_index
    return {
        "index_length": index_length,
        "inner": inner,
        "length": length,
        **{f"{name}_{part}": stride for part, stride in zip(_AXES, data_strides, strict=True)},
        **{f"index_{part}": stride for part, stride in zip(_AXES, index_strides, strict=True)},
    }


def _launch(runtime: Runtime, name: str, definitions: Mapping[str, Any], items: int, data: Arguments) -> Launch:
    """Return a launch over `items` elements or lines; `data` names the data and the result."""
    size = runtime.features.group_size
    args: Arguments = {"index": Tensor(1), "items": items, **data}
    return runtime.launch(f"gather/{name}", {**definitions, "GROUP": size}, args, ceil_div(items, size))


def _take_along_axis(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    x, index = inputs
    (out,) = outputs
    if not isinstance(x, Spec) or not isinstance(index, Spec):
        return Declined("an operand is a number")
    if too_large(runtime, x, index, out):
        return OPERAND_TOO_LARGE
    geometry = _geometry("x", x, index, params["axis"], x.shape[params["axis"]])
    if geometry is None:
        return Declined("the axes other than the indexed one cannot be merged")
    definitions = {"BYTES": out.dtype.itemsize, "INDEX": index.dtype.name}
    return _launch(runtime, "take_along_axis", definitions, out.size, {"x": Tensor(0), "out": Tensor(2), **geometry})


def _scatter_along_axis(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    src, index, base = inputs
    (out,) = outputs
    if not isinstance(src, Spec) or not isinstance(index, Spec):
        return Declined("an operand is a number")
    axis, length = params["axis"], params["length"]
    if is_half(out.dtype) and index.shape[axis] > 1:
        return Declined(f"sums of {out.dtype.name} would be rounded at every step")
    if too_large(runtime, src, index, out):
        return OPERAND_TOO_LARGE
    lines = index.size // index.shape[axis]
    if lines == 1 and not runtime.features.cpu:
        # One invocation per line would underuse a GPU: treat the elements of a single line as rows of one column.
        column = contiguous(out.dtype, (length, 1))._replace(aligned=out.aligned)
        line = Spec(index.dtype, (index.size,), (index.strides[axis],), index.aligned)
        sums = RowSums(line, src, src.strides[axis], 1, column, (1, 0, _SUMS), wrap=True)
        add = add_rows(runtime, sums, accumulate=True)
        return add if isinstance(add, Declined) else _onto(runtime, base, out, add)
    geometry = _geometry("source", src, index, axis, length)
    if geometry is None:
        return Declined("the axes other than the indexed one cannot be merged")
    definitions = {"DTYPE": out.dtype.name, "INDEX": index.dtype.name}

    def launch(first: int, last: int) -> Launch:
        args: Arguments = {"source": Tensor(0), "out": Tensor(_SUMS), **geometry, "first": first, "last": last}
        return _launch(runtime, "scatter_along_axis", definitions, lines, args)

    return _onto(runtime, base, out, within_loop_limit(index.shape[axis], launch))


def _onto(runtime: Runtime, base: InputSpec | None, out: Spec, launch: Launch) -> Launch:
    """Return the launch that adds to the elements of the result, preceded by a copy of the base, or by zeros."""
    if not isinstance(base, Spec):
        return after_zeros(copy.fill(runtime, out), launch, _SUMS)
    duplicate = copy.copy(runtime, base, out)
    first = SimpleLaunch(duplicate.name, lambda *args: duplicate(args[_BASE], args[_SUMS]))
    return LaunchSequence((first, launch), launch.workspace)


LOWERINGS: dict[str, LoweringFunction] = {
    "take_along_axis": _take_along_axis,
    "scatter_along_axis": _scatter_along_axis,
}
