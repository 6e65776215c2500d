"""Cholesky factors of batches of small matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import Tensor
from polyhal.backends.common.problems.linear_algebra import (
    CHECKED,
    matrix_batch,
    require_small,
    size_class,
    tile_bytes,
    transposed,
)
from polyhal.backends.opencl_c.lowering.linear_algebra.groups import batch_args, group_size, require_local
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def _cholesky_factor(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    if params["check"]:
        return CHECKED
    a = inputs[0]
    assert isinstance(a, Spec)
    rows = a.shape[-1]
    if params["upper"]:
        a = transposed(a)
    batch, size = matrix_batch([a], a.shape[:-2]), size_class(rows)
    if isinstance(batch, Declined):
        return batch
    refusal = require_small(rows) or require_local(runtime, tile_bytes(size, a.dtype))
    if refusal is not None:
        return refusal
    out_row, out_column = (1, rows) if params["upper"] else (rows, 1)
    group = group_size(runtime, size)
    return runtime.launch(
        "linear_algebra/cholesky",
        {"DTYPE": a.dtype.name, "SIZE": size, "GROUP": group},
        {
            "a": Tensor(0),
            "out": Tensor(1),
            "info": Tensor(2),
            **batch_args(batch, "a"),
            "rows": rows,
            "out_row": out_row,
            "out_column": out_column,
            "start": params["start"],
        },
        (batch.count * group,),
        (group,),
    )


LOWERINGS = {"cholesky_factor": _cholesky_factor}
