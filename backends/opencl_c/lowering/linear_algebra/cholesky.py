"""Cholesky factors: of batches of small matrices by a group each, and of large ones by panels, in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems.linear_algebra import (
    CHECKED,
    SMALL,
    MatrixBatch,
    matrix_batch,
    require_small,
    size_class,
    tile_bytes,
    transposed,
)
from polyhal.backends.opencl_c.lowering.linear_algebra.groups import batch_args, group_size, require_local
from polyhal.backends.opencl_c.lowering.linear_algebra.rank_update import Part, rank_update, update_bytes
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_PANEL, _MIN_PANEL = 64, 16
"""Columns of a panel: the most, and the fewest that local memory must hold."""


def _panel_bytes(panel: int, itemsize: int) -> int:
    return 2 * panel * (panel + 4) * itemsize


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
    if rows > SMALL:
        return _by_panels(runtime, batch, a, params["upper"], params["start"])
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


def _by_panels(runtime: Runtime, batch: MatrixBatch, a: Spec, upper: bool, start: int) -> Launch | Declined:
    """Return launches for the panels of each matrix and their updates, between a copy and the zeros of the other triangle."""
    if runtime.features.cpu:
        return Declined("LAPACK factors large matrices on processors")
    rows, dtype = a.shape[-1], a.dtype
    panel = _PANEL
    while _panel_bytes(panel, dtype.itemsize) > runtime.features.static_local_memory:
        panel //= 2
    if panel < _MIN_PANEL or update_bytes(panel, dtype) > runtime.features.static_local_memory:
        return Declined("a panel exceeds the local memory")
    out, info, diagonals = Tensor(1), Tensor(2), Workspace(3)
    row, column = (1, rows) if upper else (rows, 1)
    definitions: dict[str, str | int] = {"DTYPE": dtype.name, "SIZE": panel}
    strides = {"row": row, "column": column, "rows": rows}
    size, group = batch.count * rows * rows, runtime.features.group_size

    def triangle(kernel: str, args: Arguments) -> Launch:
        args = {"out": out, "info": info, "size": size, **strides, **args}
        return runtime.launch("linear_algebra/cholesky_triangle", definitions, args, (size,), (group,), kernel=kernel)

    steps = [triangle("cholesky_begin", {"a": Tensor(0), **batch_args(batch, "a")})]
    for first in range(0, rows, panel):
        rest = rows - first - panel
        tiles = max(1, ceil_div(rest, panel))
        steps.append(
            runtime.launch(
                "linear_algebra/cholesky_panel",
                {**definitions, "GROUP": 2 * panel, "UPPER": upper},
                {
                    "out": out,
                    "info": info,
                    "diagonals": diagonals,
                    **strides,
                    "first": first,
                    "tiles": tiles,
                    "start": start,
                },
                (batch.count * tiles * 2 * panel,),
                (2 * panel,),
            )
        )
        if rest > 0:
            below, corner = (first + panel) * row + first * column, (first + panel) * (row + column)
            parts = Part(below, row, column), Part(below, column, row), Part(corner, row, column)
            shape = rest, rest
            steps.append(rank_update(runtime, out, dtype, batch.count, rows * rows, parts, shape, panel, lower=True))
    steps.append(triangle("cholesky_end", {"diagonals": diagonals}))
    return LaunchSequence(steps, (batch.count * rows * panel * dtype.itemsize,))


LOWERINGS = {"cholesky_factor": _cholesky_factor}
