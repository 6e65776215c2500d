"""Groups of work-items that each have one small matrix in local memory (shaders/opencl/linear_algebra/matrices.h)."""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import power_of_two_at_least
from polyhal.backends.common.launching.launch import Argument, Arguments, Tensor, Workspace
from polyhal.backends.common.problems.linear_algebra import PANEL, SMALL, MatrixBatch, matrix_batch
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

_MIN_SIZE = 8
_MIN_GROUP = 32
_PANEL_GROUP = 512


def size_class(*lengths: int) -> int:
    """Return the number of rows or columns for which a kernel is compiled: powers of two, so that programs are few."""
    return max(_MIN_SIZE, power_of_two_at_least(max(lengths)))


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


def tile_bytes(size: int, dtype: DType) -> int:
    """Return the local memory of a matrix with padded rows."""
    return size * (size + 1) * dtype.itemsize


def require_small(*lengths: int) -> Declined | None:
    """Return the reason why matrices are not small; None if they are."""
    if max(lengths) > SMALL:
        return Declined(f"matrices of {' x '.join(map(str, lengths))}: one group holds up to {SMALL} rows and columns")
    return None


def require_local(runtime: Runtime, nbytes: int) -> Declined | None:
    """Return the reason why a group lacks local memory; None if it suffices."""
    available = runtime.features.static_local_memory
    return Declined(f"needs {nbytes} bytes of local memory of {available}") if nbytes > available else None


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


CHECKED = Declined("its program checks the result")
"""For ops that raise an error for some values: a launch does not read its results."""
