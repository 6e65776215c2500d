"""Sums of rows by index, with atomic additions if CUDA supports them for the dtype. Kernel: kernels/gather/scatter_add.cu."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, Strided, Tensor, after_zeros
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.gather import flat_stride, row_stride
from polyhal.backends.common.problems.norm import Inputs
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch
from polyhal_cupy.launch import KernelLaunch
from polyhal_cupy.lowering.gather.gather import NOT_A_TENSOR
from polyhal_cupy.lowering.pointwise import copy
from polyhal_cupy.runtime import Runtime

_BLOCK = 256
ATOMIC: dict[DType, str] = {
    dtypes.float32: "float32", dtypes.float64: "float64", dtypes.int32: "int32", dtypes.uint32: "uint32",
    dtypes.int64: "uint64", dtypes.uint64: "uint64",
}  # fmt: skip
"""Dtypes with an atomic addition, and the type whose `atomicAdd` performs it."""


def _add_rows(
    runtime: Runtime, index: Spec, source: tuple[int, int, int, int], out: Spec, places: tuple[int, int, int]
) -> KernelLaunch | Declined:
    """Return the launch.

    `source` is (count, width, row stride, column stride); `places` are the indices of index, source, out.
    """
    step = flat_stride(index)
    if step is None:
        return Declined("the index is not evenly spaced")
    count, width, row_step, column_step = source
    if width >= 1 << 31:
        return Declined("an axis is longer than 2^31")
    atomic = ATOMIC.get(out.dtype)
    items = count * width
    args: Arguments = {
        "index": Strided(Tensor(places[0]), {"step": step}),
        "source": Strided(Tensor(places[1]), {"row": row_step, "column": column_step}), "out": Tensor(places[2]),
        "items": items, "width": width, "rows": out.shape[0],
    }  # fmt: skip
    definitions: dict[str, str | int | bool] = {
        "DTYPE": out.dtype.name, "INDEX_DTYPE": index.dtype.name, "BLOCK": _BLOCK
    }  # fmt: skip
    if atomic:
        definitions["ATOMIC"] = atomic
    kernel = "scatter_add" if atomic else "scatter_ordered"
    blocks = ceil_div(items if atomic else width, _BLOCK)
    return runtime.launch("scatter_add", "gather/scatter_add", definitions, args, blocks, _BLOCK, kernel=kernel)


def scatter_add(runtime: Runtime, index: Spec, source: Spec, out: Spec) -> Launch:
    """Return a launch (index, source, out) that adds rows. All are contiguous."""
    count, width = source.shape
    launch = _add_rows(runtime, index, (count, width, width, 1), out, (0, 1, 2))
    assert not isinstance(launch, Declined)
    return launch


def _scatter_rows(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    src, index = inputs
    (out,) = outputs
    if not isinstance(src, Spec) or not isinstance(index, Spec):
        return NOT_A_TENSOR
    if out.dtype not in ATOMIC:
        return Declined(f"sums of {out.dtype.name} would be rounded at every step")
    row = row_stride(src)
    if row is None:
        return Declined("the rows are not evenly spaced")
    launch = _add_rows(runtime, index, (index.size, src.shape[-1], row, src.strides[-1]), out, (1, 0, 2))
    return launch if isinstance(launch, Declined) else after_zeros(copy.fill(runtime, out), launch, 2)


LOWERINGS: dict[str, LoweringFunction] = {"scatter_rows": _scatter_rows}
