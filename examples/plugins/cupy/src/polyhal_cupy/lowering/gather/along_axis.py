"""Gather and atomic scatter-add along an axis by index. Kernel: kernels/gather/along_axis.cu."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, Strided, Tensor, after_zeros
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.gather import outer_axis_inner
from polyhal.backends.common.problems.norm import Inputs
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch
from polyhal_cupy.launch import KernelLaunch
from polyhal_cupy.lowering.gather.gather import NOT_A_TENSOR
from polyhal_cupy.lowering.gather.scatter_add import ATOMIC
from polyhal_cupy.lowering.pointwise import copy
from polyhal_cupy.runtime import Runtime

_BLOCK = 256
_SUMS = 3
"""Argument index of the result of scattering, after the data, the index and the base."""


def _launch(
    runtime: Runtime, name: str, data: Spec, index: Spec, axis: int, length: int, place: int
) -> KernelLaunch | Declined:
    merged_data, merged_index = outer_axis_inner(data, axis), outer_axis_inner(index, axis)
    if merged_data is None or merged_index is None:
        return Declined("the axes other than the indexed one cannot be merged")
    _, data_strides = merged_data
    (_, index_length, inner), index_strides = merged_index
    items = math.prod(index.shape)
    args: Arguments = {
        "data": _strided(0, data_strides), "index": _strided(1, index_strides), "out": Tensor(place), "size": items,
        "index_length": index_length, "inner": inner, "length": length,
    }  # fmt: skip
    definitions: dict[str, str | int | bool] = {
        "DTYPE": data.dtype.name, "INDEX_DTYPE": index.dtype.name, "BLOCK": _BLOCK
    }  # fmt: skip
    if data.dtype in ATOMIC:
        definitions["ATOMIC"] = ATOMIC[data.dtype]
    return runtime.launch(name, "gather/along_axis", definitions, args, ceil_div(items, _BLOCK), _BLOCK, kernel=name)


def _strided(place: int, strides: tuple[int, int, int]) -> Strided:
    return Strided(Tensor(place), dict(zip(("outer", "axis", "inner"), strides, strict=True)))


def _take_along_axis(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    x, index = inputs
    if not isinstance(x, Spec) or not isinstance(index, Spec):
        return NOT_A_TENSOR
    axis = params["axis"]
    return _launch(runtime, "take_along_axis", x, index, axis, x.shape[axis], 2)


def _scatter_along_axis(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    src, index, base = inputs
    (out,) = outputs
    if base is not None:
        return Declined("the kernel only adds to zeros")
    if not isinstance(src, Spec) or not isinstance(index, Spec):
        return NOT_A_TENSOR
    if out.dtype not in ATOMIC:
        return Declined(f"sums of {out.dtype.name} would be rounded at every step")
    launch = _launch(runtime, "scatter_along_axis", src, index, params["axis"], params["length"], _SUMS)
    return launch if isinstance(launch, Declined) else after_zeros(copy.fill(runtime, out), launch, _SUMS)


LOWERINGS: dict[str, LoweringFunction] = {
    "take_along_axis": _take_along_axis,
    "scatter_along_axis": _scatter_along_axis,
}
