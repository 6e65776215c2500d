"""LU factors: of batches of small matrices, and of tall panels of large ones; determinants of small matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import Arguments, Tensor, Workspace
from polyhal.backends.common.problems.linear_algebra import (
    CHECKED,
    PANEL,
    SMALL,
    MatrixBatch,
    matrix_batch,
    require_small,
    size_class,
    tile_bytes,
)
from polyhal.backends.opencl_c.lowering.linear_algebra.groups import batch_args, group_size, panel_launch, require_local
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Inputs = tuple[InputSpec | None, ...]


def _lu_factors(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    if params["check"]:
        return CHECKED
    rows, columns = outputs[0].shape[-2:]
    args: Arguments = {
        "out": Tensor(1),
        "pivots": Tensor(2),
        "info": Tensor(3),
        "rows": rows,
        "columns": columns,
        "exchange": params["pivot"],
        "start": params["start"],
    }
    if rows > SMALL and columns <= PANEL:
        return panel_launch(runtime, "linear_algebra/lu_panel", inputs[0], args, Workspace(4))
    return _launch(runtime, inputs[0], args, "linear_algebra_lu")


def _determinant(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    return _square(runtime, inputs[0], {"out": Tensor(1)}, "lu_determinant")


def _log_determinant(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    return _square(runtime, inputs[0], {"sign": Tensor(1), "logabsdet": Tensor(2)}, "lu_log_determinant")


def _square(runtime: Runtime, a: InputSpec | None, args: Arguments, kernel: str) -> Launch | Declined:
    assert isinstance(a, Spec)
    return _launch(runtime, a, {**args, "rows": a.shape[-1]}, kernel)


def _launch(runtime: Runtime, a: InputSpec | None, args: Arguments, kernel: str) -> Launch | Declined:
    assert isinstance(a, Spec)
    rows, columns = a.shape[-2:]
    batch = matrix_batch([a], a.shape[:-2])
    size = size_class(rows, columns)
    if isinstance(batch, Declined):
        return batch
    refusal = require_small(rows, columns) or require_local(runtime, tile_bytes(size, a.dtype) + 4 * size)
    return refusal or launch_groups(runtime, "linear_algebra/lu", kernel, size, a, batch, args)


def launch_groups(
    runtime: Runtime, file: str, kernel: str, size: int, a: Spec, batch: MatrixBatch, args: Arguments
) -> Launch:
    """Return the launch of a group for each matrix."""
    group = group_size(runtime, size)
    return runtime.launch(
        file,
        {"DTYPE": a.dtype.name, "SIZE": size, "GROUP": group},
        {"a": Tensor(0), **batch_args(batch, "a"), **args},
        (batch.count * group,),
        (group,),
        kernel=kernel,
    )


LOWERINGS = {"lu_factors": _lu_factors, "determinant": _determinant, "log_determinant": _log_determinant}
