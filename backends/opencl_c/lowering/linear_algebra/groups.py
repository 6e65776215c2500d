"""Groups of work-items that each have one small matrix in local memory (shaders/opencl/linear_algebra/matrices.h)."""

from __future__ import annotations

from polyhal.backends.common.launching.launch import Argument, Arguments, Tensor, Workspace
from polyhal.backends.common.problems.linear_algebra import PANEL, SMALL, MatrixBatch, matrix_batch
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

_MIN_GROUP = 32
_PANEL_GROUP = 512
_CHUNK_BYTES, _MIN_CHUNK = 256 * 4, 32
"""Rows of a chunk of a panel times the bytes of an element, at most, and the fewest rows."""


def group_size(runtime: Runtime, size: int, most: int = SMALL) -> int:
    """Return the work-items of a group for matrices of up to `size` rows: one per row, or one for all on processors."""
    if runtime.features.cpu:
        return 1
    return min(max(_MIN_GROUP, size), most, runtime.features.max_group_size)


def batch_args(batch: MatrixBatch, *names: str) -> dict[str, Argument]:
    """Return BATCH_MEMBERS and the MATRIX_MEMBERS of the first operands, which have these names in the kernel."""
    args: dict[str, Argument] = {"batch1": batch.axes[1], "batch2": batch.axes[2]}
    for name, operand in zip(names, batch.operands, strict=False):
        args |= {f"{name}_batch": operand.batch, f"{name}_row": operand.row, f"{name}_column": operand.column}
    return args


def require_local(runtime: Runtime, nbytes: int) -> Declined | None:
    """Return the reason why a group lacks local memory; None if it suffices."""
    available = runtime.features.static_local_memory
    return Declined(f"needs {nbytes} bytes of local memory of {available}") if nbytes > available else None


def panel_chunk(runtime: Runtime, group: int, dtype: DType, others: int) -> int:
    """Return the rows of a panel that pass through local memory at a time, in addition to `others` bytes.

    See shaders/opencl/linear_algebra/transposed_panel.h.
    """
    rows = min(group, _CHUNK_BYTES // dtype.itemsize)
    while rows > _MIN_CHUNK and chunk_bytes(rows, dtype) + others > runtime.features.static_local_memory:
        rows //= 2
    return rows


def chunk_bytes(rows: int, dtype: DType) -> int:
    """Return the local memory of a chunk of `rows` rows."""
    return rows * (PANEL + 1) * dtype.itemsize


def panel_launch(
    runtime: Runtime, file: str, a: InputSpec | None, args: Arguments, workspace: Workspace
) -> Launch | Declined:
    """Return the launch of a large group for each tall panel, which is copied to the workspace."""
    assert isinstance(a, Spec)
    if runtime.features.cpu:
        return Declined("LAPACK factors panels of large matrices on processors")
    batch = matrix_batch([a], a.shape[:-2])
    if isinstance(batch, Declined):
        return batch
    group = min(_PANEL_GROUP, runtime.features.max_group_size)
    return runtime.launch(
        file,
        {"DTYPE": a.dtype.name, "SIZE": PANEL, "GROUP": group},
        {"a": Tensor(0), "panels": workspace, **batch_args(batch, "a"), **args},
        (batch.count * group,),
        (group,),
        workspace=(a.nbytes,),
    )
