"""LU factors: of batches of small matrices, and of large ones by panels, in place; determinants of small matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, power_of_two_at_most
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Tensor, Workspace
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
from polyhal.backends.opencl_c.lowering.linear_algebra.groups import (
    batch_args,
    chunk_bytes,
    group_size,
    panel_chunk,
    panel_launch,
    require_local,
)
from polyhal.backends.opencl_c.lowering.linear_algebra.rank_update import Part, rank_update, update_bytes
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Inputs = tuple[InputSpec | None, ...]
_PANEL_GROUP, _EXCHANGE_GROUP = 512, 32
_REGISTERS, _MAX_ROWS = 64, 1 << 14
"""Elements of 4 bytes that a work-item has of a panel, and the most rows of matrices that are factored in place."""


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
    a = inputs[0]
    assert isinstance(a, Spec)
    if rows > _MAX_ROWS and columns <= PANEL:
        return panel_launch(runtime, "linear_algebra/lu_tall_panel", a, args, Workspace(4))
    if max(rows, columns) > SMALL:
        return _by_panels(runtime, a, bool(params["pivot"]), params["start"])
    return _launch(runtime, a, args, "linear_algebra_lu")


def _by_panels(runtime: Runtime, a: Spec, pivot: bool, start: int) -> Launch | Declined:
    """Return launches for the panels of each matrix and for the other columns, after a copy of the matrix."""
    features, dtype, (rows, columns) = runtime.features, a.dtype, a.shape[-2:]
    if features.cpu:
        return Declined("LAPACK factors large matrices on processors")
    if rows > _MAX_ROWS:
        return Declined(f"panels of {rows} rows exceed the registers of a group")
    batch, count_of_pivots = matrix_batch([a], a.shape[:-2]), min(rows, columns)
    if isinstance(batch, Declined):
        return batch
    group = min(_PANEL_GROUP, power_of_two_at_most(features.max_group_size))
    exchange = 2 if features.inline_ptx else 0
    others = (PANEL * (8 + PANEL + 1) + 2 * group) * dtype.itemsize + 4 * group
    chunk = panel_chunk(runtime, group, dtype, others)
    refusal = require_local(runtime, max(others + chunk_bytes(chunk, dtype), update_bytes(PANEL, dtype)))
    if refusal is not None:
        return refusal
    out, info, places = Tensor(1), Tensor(3), Workspace(4)
    definitions: dict[str, str | int] = {"DTYPE": dtype.name, "SIZE": PANEL}
    shape = {"rows": rows, "columns": columns}
    size, matrix = batch.count * rows * columns, rows * columns
    steps = [
        runtime.launch(
            "linear_algebra/lu_exchange",
            definitions,
            {"a": Tensor(0), "out": out, "info": info, **batch_args(batch, "a"), **shape, "size": size},
            (size,),
            (features.group_size,),
            kernel="lu_begin",
        )
    ]
    for first in range(0, count_of_pivots, PANEL):
        each = power_of_two_at_least(ceil_div(rows - first, group))
        block = max(1, min(8, _REGISTERS * 4 // dtype.itemsize // each))
        width = min(PANEL, columns - first)
        steps.append(
            runtime.launch(
                "linear_algebra/lu_panel",
                {**definitions, "GROUP": group, "ROWS": each, "BLOCK": block, "CHUNK": chunk, "EXCHANGE": exchange},
                {
                    "out": out,
                    "pivots": Tensor(2),
                    "info": info,
                    "places": places,
                    "workspace": Workspace(5),
                    **shape,
                    "first": first,
                    "exchange": pivot,
                    "start": start,
                },
                (batch.count * group,),
                (group,),
            )
        )
        if columns > width:
            groups = ceil_div(columns - width, _EXCHANGE_GROUP)
            steps.append(
                runtime.launch(
                    "linear_algebra/lu_exchange",
                    {**definitions, "GROUP": _EXCHANGE_GROUP},
                    {
                        "out": out,
                        "places": places,
                        **shape,
                        "first": first,
                        "steps": min(width, rows - first),
                        "width": width,
                        "groups": groups,
                    },
                    (batch.count * groups * _EXCHANGE_GROUP,),
                    (_EXCHANGE_GROUP,),
                )
            )
        below, right = rows - first - width, columns - first - width
        if below > 0 and right > 0:
            at, last = first * columns + first, width * columns
            parts = (
                Part(at + last, columns, 1),
                Part(at + width, columns, 1),
                Part(at + last + width, columns, 1),
            )
            steps.append(rank_update(runtime, out, dtype, batch.count, matrix, parts, (below, right), width))
    return LaunchSequence(steps, (batch.count * 2 * PANEL * 4, batch.count * rows * PANEL * dtype.itemsize))


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
