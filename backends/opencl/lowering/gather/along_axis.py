"""Elements picked and added by index along one axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.launching.launch import Strided, Tensor, after_zeros
from polyhal.backends.common.problems.gather import outer_axis_inner
from polyhal.backends.opencl.lowering.gather.problem import ATOMIC, atomic_definitions
from polyhal.backends.opencl.lowering.pointwise import copy
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

Inputs = tuple[InputSpec | None, ...]

_BITS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
_OUT = 2
"""Position of the result in the argument list, after the data and the index."""


def take_along_axis(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    """Lower the op `take_along_axis`."""
    x, index = inputs
    (out,) = outputs
    if not isinstance(x, Spec) or not isinstance(index, Spec):
        return Declined("an operand is a number")
    axis = params["axis"]
    # As bits, so that one program serves all dtypes of a size.
    definitions = {"DTYPE": _BITS[out.dtype.itemsize], "INDEX_DTYPE": index.dtype.name}
    sizes = {"size": out.size, "length": x.shape[axis]}
    return _launch(runtime, "take_along_axis", "x", x, index, axis, sizes, definitions)


def scatter_along_axis(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    """Lower the op `scatter_along_axis`."""
    src, index = inputs
    (out,) = outputs
    if not isinstance(src, Spec) or not isinstance(index, Spec):
        return Declined("an operand is a number")
    axis, length = params["axis"], params["length"]
    if out.dtype.is_floating_point and out.dtype.itemsize < 4 and index.shape[axis] > 1:
        return Declined(f"sums of {out.dtype.name} would be rounded at every step")
    name = "scatter_along_axis"
    definitions: dict[str, str | int | bool]
    if not runtime.features.cpu and not params["deterministic"] and out.dtype in ATOMIC:
        definitions = {**atomic_definitions(index.dtype, out.dtype, runtime.features.float_atomics), "ATOMIC": True}
        kernel, sizes = f"{name}_atomic", {"size": index.size, "length": length}
    else:
        definitions = {"DTYPE": out.dtype.name, "INDEX_DTYPE": index.dtype.name}
        kernel, sizes = name, {"lines": index.size // index.shape[axis], "length": length}
    launch = _launch(runtime, kernel, "src", src, index, axis, sizes, definitions)
    return launch if isinstance(launch, Declined) else after_zeros(copy.fill(runtime, out), launch, _OUT)


def _launch(
    runtime: Runtime, kernel: str, operand: str, data: Spec, index: Spec, axis: int, sizes: Mapping[str, int],
    definitions: Mapping[str, str | int | bool],
) -> Launch | Declined:  # fmt: skip
    """Build a launch of `kernel`, which calls the data `operand`. The first of `sizes` is its number of work-items."""
    merged_data, merged_index = outer_axis_inner(data, axis), outer_axis_inner(index, axis)
    if merged_data is None or merged_index is None:
        return Declined("the axes beside the indexed one cannot be merged")
    (_, count, inner), index_strides = merged_index
    items = next(iter(sizes.values()))
    return runtime.launch(
        "gather/along_axis", definitions,
        {
            operand: _strided(0, merged_data[1]), "index": _strided(1, index_strides), "out": Tensor(_OUT), "count": count,
            "inner": inner, **sizes,
        },
        (items,), (runtime.features.group_size,), kernel=kernel,
    )  # fmt: skip


def _strided(place: int, strides: tuple[int, int, int]) -> Strided:
    return Strided(Tensor(place), dict(zip(("outer", "axis", "inner"), strides, strict=True)))
