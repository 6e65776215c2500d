"""Solutions of systems of equations with small triangular matrices, for any number of right sides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least
from polyhal.backends.common.launching.launch import Tensor
from polyhal.backends.common.problems.linear_algebra import (
    MatrixBatch,
    from_the_end,
    matrix_batch,
    require_small,
    size_class,
    tile_bytes,
)
from polyhal.backends.opencl_c.lowering.linear_algebra.groups import batch_args, require_local
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_GROUP = 64
_CPU_COLUMNS = 32
"""Right sides that a work-item of a processor solves at once."""


def _local_bytes(size: int, width: int, dtype: DType) -> int:
    return tile_bytes(size, dtype) + size * (width + 1) * dtype.itemsize


def _solve_triangular_left(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    a, b = inputs
    assert isinstance(a, Spec)
    assert isinstance(b, Spec)
    out, (rows, columns) = outputs[0], outputs[0].shape[-2:]
    batch, size = matrix_batch([a, b], out.shape[:-2]), size_class(rows)
    if isinstance(batch, Declined):
        return batch
    cpu = runtime.features.cpu
    group = 1 if cpu else min(_GROUP, runtime.features.max_group_size)
    width = _CPU_COLUMNS if cpu else min(group, power_of_two_at_least(columns))
    refusal = require_small(rows) or require_local(runtime, _local_bytes(size, 1, out.dtype))
    if refusal is not None:
        return refusal
    while require_local(runtime, _local_bytes(size, width, out.dtype)):
        width //= 2
    starts, out_row = (0, 0, 0), columns
    if params["upper"]:
        (first, a_step), (second, b_step) = (
            from_the_end(batch.operands[0], columns_too=True),
            from_the_end(batch.operands[1], columns_too=False),
        )
        batch, last, out_row = MatrixBatch(batch.count, batch.axes, (first, second)), rows - 1, -columns
        starts = (last * a_step, last * b_step, last * columns)
    tiles = ceil_div(columns, width)
    return runtime.launch(
        "linear_algebra/triangular_solve",
        {
            "DTYPE": out.dtype.name,
            "SIZE": size,
            "GROUP": group,
            "COLUMNS": 1 if cpu else width,
            "TILE_COLUMNS": width,
        },
        {
            "a": Tensor(0, starts[0]),
            "b": Tensor(1, starts[1]),
            "out": Tensor(2, starts[2]),
            **batch_args(batch, "a", "b"),
            "out_matrix": rows * columns,
            "out_row": out_row,
            "rows": rows,
            "columns": columns,
            "tiles": tiles,
            "unit": params["unitriangular"],
        },
        (batch.count * tiles * group,),
        (group,),
    )


LOWERINGS = {"solve_triangular_left": _solve_triangular_left}
