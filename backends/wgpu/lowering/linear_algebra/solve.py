"""Solutions of batches of small systems of equations, inverses, and solutions with triangular matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least
from polyhal.backends.common.launching.launch import Arguments, Tensor
from polyhal.backends.common.problems.linear_algebra import (
    CHECKED,
    MatrixBatch,
    from_the_end,
    matrix_batch,
    require_small,
    size_class,
    tile_bytes,
)
from polyhal.backends.wgpu.lowering.linear_algebra.groups import batch_args, group_size, launch, require_local
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Inputs = tuple[InputSpec | None, ...]
_MAX_RIGHT = 64
"""Maximum right sides that a workgroup eliminates with its matrix; more are solved from the factors."""
_GROUP = 64


def _solve_system(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    a, b = inputs
    assert isinstance(a, Spec)
    assert isinstance(b, Spec)
    if a.shape[:-2] != outputs[0].shape[:-2]:
        return Declined("one matrix has several systems: it is factored once")
    return _eliminate(runtime, {"a": a, "b": b}, outputs, params)


def _inverse_matrix(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    (a,) = inputs
    assert isinstance(a, Spec)
    return _eliminate(runtime, {"a": a}, outputs, params)


def _eliminate(
    runtime: Runtime, operands: dict[str, Spec], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    if params["check"]:
        return CHECKED
    out = outputs[0]
    rows, columns = out.shape[-2:]
    batch = matrix_batch(list(operands.values()), out.shape[:-2])
    if isinstance(batch, Declined):
        return batch
    size, right = size_class(rows), power_of_two_at_least(columns)
    nbytes = tile_bytes(size, out.dtype) + 4 * size
    refusal = require_small(rows) or require_local(runtime, nbytes)
    if refusal is None and columns > _MAX_RIGHT:
        refusal = Declined(f"{columns} right sides: they are solved from the factors")
    if refusal is not None:
        return refusal
    in_global = require_local(runtime, nbytes + size * (right + 1) * out.dtype.itemsize) is not None
    definitions = {
        "SIZE": size,
        "GROUP": group_size(runtime, size),
        "RIGHT_SIZE": 1 if in_global else right,
        "IN_GLOBAL": in_global,
        "INVERSE": len(operands) == 1,
    }
    places = {"out": Tensor(len(operands)), "info": Tensor(len(operands) + 1)}
    args: Arguments = {**places, **batch_args(batch, *operands), "rows": rows, "columns": columns}
    return launch(runtime, "solve", definitions, operands, outputs, args, batch.count)


def _solve_triangular_left(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    a, b = inputs
    assert isinstance(a, Spec)
    assert isinstance(b, Spec)
    out, (rows, columns) = outputs[0], outputs[0].shape[-2:]
    batch, size = matrix_batch([a, b], out.shape[:-2]), size_class(rows)
    if isinstance(batch, Declined):
        return batch
    width = min(_GROUP, power_of_two_at_least(columns))
    while width > 1 and require_local(runtime, _bytes(size, width, out)):
        width //= 2
    refusal = require_small(rows) or require_local(runtime, _bytes(size, width, out))
    if refusal is not None:
        return refusal
    starts, out_row = (0, 0, 0), columns
    if params["upper"]:
        first, a_step = from_the_end(batch.operands[0], columns_too=True)
        second, b_step = from_the_end(batch.operands[1], columns_too=False)
        batch, last, out_row = MatrixBatch(batch.count, batch.axes, (first, second)), rows - 1, -columns
        starts = (last * a_step, last * b_step, last * columns)
    tiles = ceil_div(columns, width)
    args: Arguments = {
        "out": Tensor(2),
        **dict(zip(("a_first", "b_first", "out_first"), starts, strict=True)),
        **batch_args(batch, "a", "b"),
        "out_row": out_row,
        "rows": rows,
        "columns": columns,
        "tiles": tiles,
        "unit": int(params["unitriangular"]),
    }
    definitions = {"SIZE": size, "GROUP": _GROUP, "COLUMNS": width}
    return launch(runtime, "triangular_solve", definitions, {"a": a, "b": b}, outputs, args, batch.count * tiles)


def _bytes(size: int, width: int, out: Spec) -> int:
    return tile_bytes(size, out.dtype) + size * (width + 1) * out.dtype.itemsize


LOWERINGS = {
    "solve_system": _solve_system,
    "inverse_matrix": _inverse_matrix,
    "solve_triangular_left": _solve_triangular_left,
}
