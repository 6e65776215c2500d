"""Adding rows by index, as in gradients of embeddings: in a fixed order, or atomically if that is faster and allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import LaunchSequence, after_zeros
from polyhal.backends.common.problems.gather import flat_stride, row_stride
from polyhal.backends.common.problems.multi_tensor import copy_unless_aliased
from polyhal.backends.opencl_c.lowering.gather import cpu_scatter_add, scatter_add_atomic, scatter_add_ordered
from polyhal.backends.opencl_c.lowering.gather.problem import ATOMIC, RowIndex, RowScatter, SourceRows, TargetRows
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch, SimpleLaunch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Inputs = tuple[InputSpec | None, ...]

_MAX_ATOMIC = 40 << 20
"""Maximum elements for which atomics were faster than ordered addition, for any number of rows."""
_WIDE, _MAX_ATOMIC_WIDE = 256, 16 << 20
"""Minimum elements of wide rows, which ordered addition reads at memory bandwidth, and their maximum for atomics."""
_MAX_ATOMIC_QUADS = 1 << 31
"""Maximum elements for atomics if one instruction adds four floats."""


def scatter_add(runtime: Runtime, index: Spec, source: Spec, out: Spec) -> Launch:
    """Build a launch (index, source, out) that adds rows in the order of the index. All are contiguous."""
    (_, width), (row, column) = source.shape, source.strides
    rows = SourceRows(1, source.dtype, width, row, column, source.aligned)
    launch = _scatter(runtime, index, 0, rows, out, 2, ordered=True)
    assert not isinstance(launch, Declined)
    return launch


def scatter_rows(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    """Lower the op `scatter_rows`."""
    src, index = inputs
    (out,) = outputs
    if not isinstance(src, Spec) or not isinstance(index, Spec):
        return Declined("an operand is a number")
    row = row_stride(src)
    if row is None:
        return Declined("the rows of the source are not evenly spaced")
    width = src.shape[-1]
    rows = SourceRows(0, src.dtype, width, row, src.strides[-1] if width > 1 else 1, src.aligned)
    launch = _scatter(runtime, index, 1, rows, out, 2, ordered=params["deterministic"])
    return launch if isinstance(launch, Declined) else after_zeros(copy.fill(runtime, out), launch, 2)


def add_rows(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    """Lower the op `add_rows`."""
    _, index, src = inputs
    (out,) = outputs
    if not isinstance(src, Spec) or not isinstance(index, Spec):
        return Declined("an operand is a number")
    row, column = src.strides
    rows = SourceRows(1, src.dtype, src.shape[1], row, column, src.aligned)
    launch = _scatter(runtime, index, 0, rows, out, 2, ordered=params["deterministic"])
    if isinstance(launch, Declined):
        return launch
    add = SimpleLaunch(launch.name, lambda x, *args: launch(*args))
    return LaunchSequence((copy_unless_aliased(copy.copy, runtime, [(0, 0)], inputs, outputs), add), launch.workspace)


def _scatter(
    runtime: Runtime, index: Spec, index_place: int, source: SourceRows, out: Spec, out_place: int, *, ordered: bool
) -> Launch | Declined:
    step = flat_stride(index)
    if step is None:
        return Declined("the index is not evenly spaced")
    if max(index.size, source.width, out.shape[0]) >= 1 << 31:
        return Declined("an axis is longer than 2^31")
    target = TargetRows(out_place, out.dtype, out.shape[0], out.aligned)
    problem = RowScatter(RowIndex(index_place, index.dtype, index.size, step), source, target)
    if runtime.features.cpu:
        return cpu_scatter_add.build(runtime, problem, out)
    limit = _MAX_ATOMIC_WIDE if source.width >= _WIDE else _MAX_ATOMIC
    if scatter_add_atomic.adds_quads(runtime, problem):
        limit = _MAX_ATOMIC_QUADS
    if not ordered and out.dtype in ATOMIC and index.size * source.width <= limit:
        return scatter_add_atomic.build(runtime, problem)
    return scatter_add_ordered.build(runtime, problem)
