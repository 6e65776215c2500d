"""Solutions of systems of equations with triangular matrices, for any number of right sides.

Small matrices are in local memory. Of larger ones the blocks of the diagonal are inverted first; the largest are divided by the
op's program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least
from polyhal.backends.common.launching.launch import Argument, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems.linear_algebra import (
    SMALL,
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

_BLOCK, _STRIP, _STRIP_GROUP, _STRIP_ROWS = 32, 8, 256, 1024
"""Of large matrices: rows of an inverted block, most right sides and work-items of a group, and most rows."""


def _local_bytes(size: int, width: int, dtype: DType) -> int:
    return tile_bytes(size, dtype) + size * (width + 1) * dtype.itemsize


def _lower_system(batch: MatrixBatch, rows: int, columns: int, upper: bool) -> dict[str, Argument]:
    """Return the arguments of both operands and the result; an upper triangle is a lower one from the other end."""
    starts, out_row = (0, 0, 0), columns
    if upper:
        (first, a_step), (second, b_step) = (
            from_the_end(batch.operands[0], columns_too=True),
            from_the_end(batch.operands[1], columns_too=False),
        )
        batch, last, out_row = MatrixBatch(batch.count, batch.axes, (first, second)), rows - 1, -columns
        starts = (last * a_step, last * b_step, last * columns)
    return {
        "a": Tensor(0, starts[0]),
        "b": Tensor(1, starts[1]),
        "out": Tensor(2, starts[2]),
        **batch_args(batch, "a", "b"),
        "out_matrix": rows * columns,
        "out_row": out_row,
    }


def _by_strips(runtime: Runtime, batch: MatrixBatch, out: Spec, upper: bool, unit: bool) -> Launch | Declined:
    """Return two launches: inverses of the blocks of the diagonal, and groups that each solve for a strip of right sides."""
    features, dtype, (rows, columns) = runtime.features, out.dtype, out.shape[-2:]
    if features.cpu:
        return Declined("LAPACK solves large systems on processors")
    if rows > _STRIP_ROWS:
        return Declined(f"{rows} rows: products of blocks take less time")
    size, group = size_class(rows), min(_STRIP_GROUP, features.max_group_size)
    width = min(_STRIP, power_of_two_at_least(columns))

    def nbytes() -> int:
        return (size * width + group * (_BLOCK + 1)) * dtype.itemsize

    while nbytes() > features.static_local_memory and width > 1:
        width //= 2
    while nbytes() > features.static_local_memory and group > _BLOCK * width:
        group //= 2
    refusal = require_local(runtime, nbytes())
    if refusal is not None or group < _BLOCK * width:
        return refusal or Declined(f"groups of {group} work-items are too small")
    blocks, strips = ceil_div(rows, _BLOCK), ceil_div(columns, width)
    system, inverses = _lower_system(batch, rows, columns, upper), Workspace(3)
    inverse = runtime.launch(
        "linear_algebra/triangular_inverse",
        {"DTYPE": dtype.name, "SIZE": _BLOCK, "GROUP": _BLOCK},
        {
            **{name: value for name, value in system.items() if name != "b" and not name.startswith(("b_", "out"))},
            "inverses": inverses,
            "rows": rows,
            "blocks": blocks,
            "unit": unit,
        },
        (batch.count * blocks * _BLOCK,),
        (_BLOCK,),
    )
    solve = runtime.launch(
        "linear_algebra/triangular_strips",
        {
            "DTYPE": dtype.name,
            "SIZE": size,
            "GROUP": group,
            "COLUMNS": width,
            "ALONG_ROWS": abs(batch.operands[0].row) == 1,
        },
        {**system, "inverses": inverses, "rows": rows, "columns": columns, "strips": strips, "blocks": blocks},
        (batch.count * strips * group,),
        (group,),
    )
    return LaunchSequence((inverse, solve), (batch.count * blocks * _BLOCK * _BLOCK * dtype.itemsize,))


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
    if rows > SMALL:
        return _by_strips(runtime, batch, out, params["upper"], params["unitriangular"])
    group = 1 if cpu else min(_GROUP, runtime.features.max_group_size)
    width = _CPU_COLUMNS if cpu else min(group, power_of_two_at_least(columns))
    refusal = require_small(rows) or require_local(runtime, _local_bytes(size, 1, out.dtype))
    if refusal is not None:
        return refusal
    while require_local(runtime, _local_bytes(size, width, out.dtype)):
        width //= 2
    system = _lower_system(batch, rows, columns, params["upper"])
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
            **system,
            "rows": rows,
            "columns": columns,
            "tiles": tiles,
            "unit": params["unitriangular"],
        },
        (batch.count * tiles * group,),
        (group,),
    )


LOWERINGS = {"solve_triangular_left": _solve_triangular_left}
