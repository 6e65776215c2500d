"""QR factors and Householder reflections: of batches of small matrices, and of large ones by panels, in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, power_of_two_at_most
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems.linear_algebra import (
    PANEL,
    SMALL,
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
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Inputs = tuple[InputSpec | None, ...]
_TEAM, _PANEL_GROUP, _MIN_PANEL, _REGISTERS = 32, 512, 8, 64
"""Work-items of a column and of a panel; the fewest columns of a panel, and elements of 4 bytes of a work-item."""
_APPLY_GROUP, _CHUNK, _STRIP = 256, 128, 8
"""Work-items, rows in local memory and columns of a group that applies reflections."""


def _householder_factors(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    a = inputs[0]
    rows, columns = outputs[0].shape[-2:]
    args: Arguments = {"out": Tensor(1), "tau": Tensor(2), "rows": rows, "columns": columns}
    assert isinstance(a, Spec)
    if rows > _max_rows(a.dtype) and columns <= PANEL:
        return panel_launch(runtime, "linear_algebra/qr_tall_panel", a, args, Workspace(3))
    if max(rows, columns) > SMALL:
        return _by_panels(runtime, a)
    return _small(runtime, a, args, "linear_algebra_qr", with_q=False)


def _max_rows(dtype: DType) -> int:
    """Return the most rows of matrices that are factored in place: a team has a whole column in registers."""
    return 2 * _REGISTERS * 4 // dtype.itemsize * _TEAM


def _panel(runtime: Runtime, rows: int, dtype: DType) -> tuple[int, int, int]:
    """Return the columns of a panel with `rows` rows, the work-items of its group, and the rows of each."""
    group = min(_PANEL_GROUP, power_of_two_at_most(runtime.features.max_group_size))
    each, most = power_of_two_at_least(ceil_div(rows, _TEAM)), _REGISTERS * 4 // dtype.itemsize
    columns = PANEL
    while columns > _MIN_PANEL and columns * each > most * (group // _TEAM):
        columns //= 2
    return columns, min(group, columns * _TEAM), each


def _by_panels(runtime: Runtime, a: Spec) -> Launch | Declined:
    """Return launches for the panels of each matrix and for the columns to their right, after a copy of the matrix."""
    features, dtype, (rows, columns) = runtime.features, a.dtype, a.shape[-2:]
    if features.cpu:
        return Declined("LAPACK factors large matrices on processors")
    if rows > _max_rows(dtype):
        return Declined(f"panels of {rows} rows exceed the registers of a group")
    batch = matrix_batch([a], a.shape[:-2])
    if isinstance(batch, Declined):
        return batch
    if features.max_group_size < _APPLY_GROUP:
        return Declined(f"groups of {features.max_group_size} work-items are too small")
    chunk = _CHUNK * 4 // dtype.itemsize
    apply_bytes = (max(chunk * (PANEL + 4), 16 * PANEL * 8) + chunk * 12 + PANEL * 8) * dtype.itemsize
    others = (2 * power_of_two_at_least(rows) + PANEL * (PANEL + 4) + _PANEL_GROUP) * dtype.itemsize
    rows_at_once = panel_chunk(runtime, power_of_two_at_least(rows), dtype, others)
    refusal = require_local(runtime, max(apply_bytes, others + chunk_bytes(rows_at_once, dtype)))
    if refusal is not None:
        return refusal
    out, triangles, shape = Tensor(1), Workspace(3), {"rows": rows, "columns": columns}
    exchange = 2 if features.inline_ptx and dtype.itemsize == 4 else 0
    size = batch.count * rows * columns
    steps = [
        runtime.launch(
            "linear_algebra/qr_apply",
            {"DTYPE": dtype.name},
            {"a": Tensor(0), "out": out, **batch_args(batch, "a"), **shape, "size": size},
            (size,),
            (features.group_size,),
            kernel="qr_begin",
        )
    ]
    first = 0
    while first < min(rows, columns):
        panel, group, each = _panel(runtime, rows - first, dtype)
        width = min(panel, columns - first)
        steps.append(
            runtime.launch(
                "linear_algebra/qr_panel",
                {
                    "DTYPE": dtype.name,
                    "SIZE": panel,
                    "GROUP": group,
                    "TEAM": _TEAM,
                    "ROWS": each,
                    "EXCHANGE": exchange,
                    "CHUNK": rows_at_once,
                },
                {"out": out, "tau": Tensor(2), "triangles": triangles, **shape, "first": first},
                (batch.count * group,),
                (group,),
            )
        )
        if columns > first + width:
            strips = ceil_div(columns - first - width, _STRIP)
            steps.append(
                runtime.launch(
                    "linear_algebra/qr_apply",
                    {"DTYPE": dtype.name, "SIZE": panel, "GROUP": _APPLY_GROUP, "CHUNK": chunk},
                    {"out": out, "triangles": triangles, **shape, "first": first, "width": width, "strips": strips},
                    (batch.count * strips * _APPLY_GROUP,),
                    (_APPLY_GROUP,),
                )
            )
        first += width
    return LaunchSequence(steps, (batch.count * PANEL * PANEL * dtype.itemsize,))


def _qr_factors(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    r = outputs[1]
    with_q = params["mode"] != "r"
    args: dict[str, Tensor | int] = {"r": Tensor(2), "kept": r.shape[-2]}
    return _small(runtime, inputs[0], args | ({"q": Tensor(1)} if with_q else {}), "qr_factors", with_q)


def _small(runtime: Runtime, a: InputSpec | None, args: Arguments, kernel: str, with_q: bool) -> Launch | Declined:
    assert isinstance(a, Spec)
    rows, columns = a.shape[-2:]
    size, batch = size_class(rows, columns), matrix_batch([a], a.shape[:-2])
    if isinstance(batch, Declined):
        return batch
    tile = tile_bytes(size, a.dtype)
    refusal = require_small(rows, columns) or require_local(runtime, tile + size * a.dtype.itemsize)
    if refusal is not None:
        return refusal
    in_global = with_q and require_local(runtime, 2 * tile + size * a.dtype.itemsize) is not None
    group = group_size(runtime, size)
    return runtime.launch(
        "linear_algebra/qr",
        {"DTYPE": a.dtype.name, "SIZE": size, "GROUP": group, "IN_GLOBAL": in_global, "WITH_Q": with_q},
        {"a": Tensor(0), **batch_args(batch, "a"), "rows": rows, "columns": columns, **args},
        (batch.count * group,),
        (group,),
        kernel=kernel,
    )


LOWERINGS = {"householder_factors": _householder_factors, "qr_factors": _qr_factors}
