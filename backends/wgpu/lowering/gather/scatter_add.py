"""Scatter-add of rows in index order, without atomics on floats, so that results are reproducible.

Kernels: shaders/wgsl/gather/scatter_add.wgsl on GPUs, cpu_scatter_add.wgsl on CPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Tensor, after_zeros
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.gather import flat_stride, row_stride
from polyhal.backends.common.problems.multi_tensor import copy_unless_aliased
from polyhal.backends.wgpu.lowering.gather.gather import MAX_LENGTH, Inputs, Places
from polyhal.backends.wgpu.lowering.pointwise import copy
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_LANES = 4
_MAX_LOOP = 1 << 15
"""Indices that an invocation processes per launch, below every driver's limit for loops (`loop_limit` in quirks.py)."""
_FEW_COLUMNS = 32
_FEW_OWNERS = 2048
"""Maximum output rows for which each row is split over several workgroups, to keep the device busy."""


@dataclass(frozen=True, slots=True)
class RowSums:
    """Addition of rows of `source` to the rows `index` of `out`. `places` are their argument indices."""

    index: Spec
    source: Spec
    row_step: int
    column_step: int
    """Stride of the source between columns."""
    out: Spec
    places: Places
    wrap: bool = False
    """True if negative indices count from the end."""

    def definitions(self, runtime: Runtime) -> dict[str, Any]:
        """Return the template variables common to all kernels."""
        return {
            "INDEX": self.index.dtype.name,
            "DTYPE": self.out.dtype.name,
            "GROUP": runtime.features.group_size,
            "WRAP": self.wrap,
        }

    def arguments(self, step: int) -> Arguments:
        """Return the arguments common to all kernels; `step` is the stride of the index."""
        index, source, out = self.places
        return {
            "index": Tensor(index),
            "source": Tensor(source),
            "out": Tensor(out),
            "width": self.out.shape[1],
            "rows": self.out.shape[0],
            "index_step": step,
            "source_row": self.row_step,
            "source_column": self.column_step,
        }


def add_rows(runtime: Runtime, sums: RowSums, *, accumulate: bool) -> Launch | Declined:
    """Return the launch that adds the sums to the output, or with `accumulate` false replaces the output by them."""
    step = flat_stride(sums.index)
    if step is None:
        return Declined("the index is not evenly spaced")
    count, (length, width) = sums.index.size, sums.out.shape
    if max(count, length, width) >= MAX_LENGTH or too_large(runtime, sums.index, sums.source, sums.out):
        return OPERAND_TOO_LARGE
    if runtime.features.cpu:
        launch = _invocation_per_column(runtime, sums, step)
    elif length <= 2 * count:
        return _group_per_owner(runtime, sums, step, length, OWN_ROW=True, ACCUMULATE=accumulate)
    else:
        launch = _group_per_owner(runtime, sums, step, count, OWN_ROW=False, ACCUMULATE=True)
    return launch if accumulate else after_zeros(copy.fill(runtime, sums.out), launch, sums.places[2])


def _group_per_owner(runtime: Runtime, sums: RowSums, step: int, owners: int, **flags: bool) -> Launch:
    """Return the launch with one workgroup per row of the output, or per index if there are many more rows than indices."""
    width = sums.out.shape[1]
    vectors = (
        sums.source.aligned
        and sums.out.aligned
        and sums.column_step == 1
        and sums.row_step % _LANES == 0
        and width % _LANES == 0
        and sums.out.dtype.itemsize <= 4
    )
    lanes = _LANES if vectors else 1
    row_vectors = width // lanes
    columns = power_of_two_at_least(row_vectors)
    columns = min(columns, runtime.features.group_size if owners >= _FEW_OWNERS else _FEW_COLUMNS)
    tiles = ceil_div(row_vectors, columns)
    definitions = {**sums.definitions(runtime), "LANES": lanes, "COLUMNS": columns, **flags}
    args: Arguments = {**sums.arguments(step), "count": sums.index.size, "owners": owners, "tiles": tiles}
    return runtime.launch("gather/scatter_add", definitions, args, owners * tiles)


def _invocation_per_column(runtime: Runtime, sums: RowSums, step: int) -> Launch:
    """Return the launch with one invocation per column.

    Callers exclude half precision, which would be rounded after every addition.
    """
    groups = ceil_div(sums.out.shape[1], runtime.features.group_size)

    def launch(first: int, last: int) -> Launch:
        args: Arguments = {**sums.arguments(step), "first": first, "last": last}
        return runtime.launch("gather/cpu_scatter_add", sums.definitions(runtime), args, groups)

    return within_loop_limit(sums.index.size, launch)


def within_loop_limit(count: int, launch: Callable[[int, int], Launch]) -> Launch:
    """Return consecutive launches `launch(first, last)` of at most as many indices as one invocation may loop over."""
    launches = [launch(first, min(first + _MAX_LOOP, count)) for first in range(0, count, _MAX_LOOP)]
    return launches[0] if len(launches) == 1 else LaunchSequence(launches)


def scatter_add(runtime: Runtime, index: Spec, source: Spec, out: Spec) -> Launch:
    """Return a launch (index, source, out) that adds rows in index order. All are contiguous."""
    sums = RowSums(index, source, source.strides[0], source.strides[1], out, (0, 1, 2))
    launch = add_rows(runtime, sums, accumulate=True)
    assert not isinstance(launch, Declined), launch.reason
    return launch


def is_half(dtype: DType) -> bool:
    """Return whether sums of this dtype would be rounded after every addition."""
    return dtype.is_floating_point and dtype.itemsize < dtypes.float32.itemsize


def _scatter_rows(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    src, index = inputs
    (out,) = outputs
    if not isinstance(src, Spec) or not isinstance(index, Spec):
        return Declined("an operand is a number")
    if runtime.features.cpu and is_half(out.dtype):
        return Declined(f"sums of {out.dtype.name} would be rounded at every step")
    step = row_stride(src)
    if step is None:
        return Declined("the rows of the source are not evenly spaced")
    column_step = src.strides[-1] if src.shape[-1] > 1 else 1
    return add_rows(runtime, RowSums(index, src, step, column_step, out, (1, 0, 2)), accumulate=False)


def _add_rows(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    _, index, src = inputs
    (out,) = outputs
    if not isinstance(src, Spec) or not isinstance(index, Spec):
        return Declined("an operand is a number")
    if runtime.features.cpu and is_half(out.dtype):
        return Declined(f"sums of {out.dtype.name} would be rounded at every step")
    row, column = src.strides
    launch = add_rows(runtime, RowSums(index, src, row, column, out, (1, 2, 3)), accumulate=True)
    if isinstance(launch, Declined):
        return launch
    return LaunchSequence(
        (copy_unless_aliased(copy.copy, runtime, [(0, 0)], inputs, outputs), launch), launch.workspace
    )


LOWERINGS: dict[str, LoweringFunction] = {"scatter_rows": _scatter_rows, "add_rows": _add_rows}
