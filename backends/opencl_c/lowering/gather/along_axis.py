"""Elements picked and added by index along one axis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Strided, Tensor, Workspace, after_zeros
from polyhal.backends.common.problems.gather import outer_axis_inner
from polyhal.backends.opencl_c.lowering.gather.problem import ATOMIC, atomic_definitions
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch, SimpleLaunch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Inputs = tuple[InputSpec | None, ...]

_BITS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
_MAX_SEQUENTIAL = 1 << 14
"""Maximum elements that a work-item of a GPU adds in order."""
_SHARES_PER_UNIT = 4
"""Work-items per compute unit of a CPU."""
_NEIGHBORS = 16
"""Minimum adjacent lines per work-item of a CPU: two work-items that write to one cache line cause false sharing."""
_BASE, _SUMS = 2, 3
"""Argument positions of the base to add to and of the result; data and index come first."""


def take_along_axis(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    """Lower the op `take_along_axis`."""
    x, index = inputs
    (out,) = outputs
    if not isinstance(x, Spec) or not isinstance(index, Spec):
        return Declined("an operand is a number")
    axis = params["axis"]
    # As bits, so that one program serves all dtypes of a size.
    definitions = {"DTYPE": _BITS[out.dtype.itemsize], "INDEX_DTYPE": index.dtype.name}
    sizes = {"size": out.size, "length": x.shape[axis]}
    if runtime.features.cpu:
        units = index.size // max(1, math.prod(index.shape[axis + 1 :]))
        units_each = max(1, ceil_div(units, _SHARES_PER_UNIT * runtime.features.compute_units))
        sizes = {
            "items": ceil_div(units, units_each),
            "units": units,
            "units_each": units_each,
            "length": x.shape[axis],
        }
        return _launch(runtime, "take_along_axis_cpu", "x", x, index, axis, sizes, definitions)
    return _launch(runtime, "take_along_axis", "x", x, index, axis, sizes, definitions)


def scatter_along_axis(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Lower the op `scatter_along_axis`."""
    src, index, base = inputs
    (out,) = outputs
    if not isinstance(src, Spec) or not isinstance(index, Spec):
        return Declined("an operand is a number")
    axis, length = params["axis"], params["length"]
    if out.dtype.is_floating_point and out.dtype.itemsize < 4 and index.shape[axis] > 1:
        return Declined(f"sums in {out.dtype.name} would be rounded at every step")
    name = "scatter_along_axis"
    definitions: dict[str, str | int | bool]
    if not runtime.features.cpu and not params["deterministic"] and out.dtype in ATOMIC:
        definitions = {**atomic_definitions(index.dtype, out.dtype, runtime.features.float_atomics), "ATOMIC": True}
        kernel, sizes = f"{name}_atomic", {"size": index.size, "length": length}
    else:
        lines = index.size // index.shape[axis] if index.size else 0
        if not runtime.features.cpu and index.size > _MAX_SEQUENTIAL * lines:
            return Declined(f"{lines} lines of {index.shape[axis]} elements, which would be added sequentially")
        definitions = {"DTYPE": out.dtype.name, "INDEX_DTYPE": index.dtype.name}
        kernel, sizes = name, {"lines": index.size // index.shape[axis], "length": length}
        if runtime.features.cpu:
            parts = runtime.features.compute_units
            if 1 < parts * out.size <= index.size and parts > 1:
                summed = _sum_parts(runtime, src, index, axis, out, parts, {**definitions, "ONTO": base is not None})
                return summed if isinstance(summed, Declined) or base is None else _onto(runtime, base, out, summed)
            kernel, sizes = f"{name}_cpu", {**_shares(runtime, index, axis), "length": length}
    launch = _launch(runtime, kernel, "src", src, index, axis, sizes, definitions, {"out": Tensor(_SUMS)})
    if isinstance(launch, Declined):
        return launch
    return _onto(runtime, base, out, launch)


def _onto(runtime: Runtime, base: InputSpec | None, out: Spec, launch: Launch) -> Launch:
    """Return the launch that adds to the elements of the result, preceded by a copy of the base, or by zeros."""
    if not isinstance(base, Spec):
        return after_zeros(copy.fill(runtime, out), launch, _SUMS)
    duplicate = copy.copy(runtime, base, out)
    first = SimpleLaunch(duplicate.name, lambda *args: duplicate(args[_BASE], args[_SUMS]))
    return LaunchSequence((first, launch), launch.workspace)


def _sum_parts(
    runtime: Runtime,
    src: Spec,
    index: Spec,
    axis: int,
    out: Spec,
    parts: int,
    definitions: Mapping[str, str | int | bool],
) -> Launch | Declined:
    """Build the launches of partial sums, over a range of the axis per work-item, and of their reduction."""
    sums = Workspace(_SUMS + 1)
    sizes = {"items": parts, "parts": parts, "outer": math.prod(index.shape[:axis]), "length": out.shape[axis]}
    add = _launch(runtime, "scatter_along_axis_parts", "src", src, index, axis, sizes, definitions, {"sums": sums})
    if isinstance(add, Declined):
        return add
    reduce = runtime.launch(
        "gather/along_axis",
        definitions,
        {"sums": sums, "out": Tensor(_SUMS), "size": out.size, "parts": parts},
        (out.size,),
        (runtime.features.group_size,),
        kernel="sum_parts",
    )
    return LaunchSequence((add, reduce), (parts * out.size * out.dtype.itemsize,))


def _shares(runtime: Runtime, index: Spec, axis: int) -> dict[str, int]:
    """Return the division of the lines along an axis among the work-items of a CPU, in runs of adjacent lines."""
    outer, inner = math.prod(index.shape[:axis]), math.prod(index.shape[axis + 1 :])
    inner_each = (
        max(_NEIGHBORS, inner * outer // (2 * runtime.features.compute_units))
        if outer < runtime.features.compute_units
        else inner
    )
    inner_each = min(inner_each, inner)
    units = outer * ceil_div(inner, inner_each)
    units_each = ceil_div(units, _SHARES_PER_UNIT * runtime.features.compute_units)
    return {"items": ceil_div(units, units_each), "units": units, "units_each": units_each, "inner_each": inner_each}


def _launch(
    runtime: Runtime,
    kernel: str,
    operand: str,
    data: Spec,
    index: Spec,
    axis: int,
    sizes: Mapping[str, int],
    definitions: Mapping[str, str | int | bool],
    result: Arguments | None = None,
) -> Launch | Declined:
    """Build a launch of `kernel` with data parameter `operand` and result `out`, or the parameters in `result`.

    Its number of work-items is `items` of `sizes`, in groups of one, or the first of them.
    """
    merged_data, merged_index = outer_axis_inner(data, axis), outer_axis_inner(index, axis)
    if merged_data is None or merged_index is None:
        return Declined("non-indexed axes cannot be merged")
    (_, count, inner), index_strides = merged_index
    sizes = dict(sizes)
    items, group = sizes.pop("items", None), 1
    if items is None:
        items, group = next(iter(sizes.values())), runtime.features.group_size
        definitions = {**definitions, "POSITION": "uint" if index.size < 1 << 31 else "ulong"}
    return runtime.launch(
        "gather/along_axis",
        definitions,
        {
            operand: _strided(0, merged_data[1]),
            "index": _strided(1, index_strides),
            **(result or {"out": Tensor(2)}),
            "count": count,
            "inner": inner,
            **sizes,
        },
        (items,),
        (group,),
        kernel=kernel,
    )


def _strided(place: int, strides: tuple[int, int, int]) -> Strided:
    return Strided(Tensor(place), dict(zip(("outer", "axis", "inner"), strides, strict=True)))
