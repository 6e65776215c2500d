"""LU, Cholesky and QR factors of batches of small matrices, their determinants, and orders of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, Tensor
from polyhal.backends.common.problems.gather import row_stride
from polyhal.backends.common.problems.linear_algebra import (
    CHECKED,
    matrix_batch,
    require_small,
    size_class,
    tile_bytes,
    transposed,
)
from polyhal.backends.wgpu.lowering.linear_algebra.groups import batch_args, group_size, launch, require_local
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.backends.wgpu.shader import Definitions
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Inputs = tuple[InputSpec | None, ...]
_ORDERS = 32
"""Matrices per workgroup for orders of rows, which take an invocation each."""


def _lu_factors(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    if params["check"]:
        return CHECKED
    places = {"out": Tensor(1), "pivots": Tensor(2), "info": Tensor(3)}
    args = {**places, "exchange": int(params["pivot"]), "start": params["start"]}
    return _factor(runtime, inputs, outputs, "lu", {"RESULT": "factors"}, args)


def _determinant(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    return _factor(runtime, inputs, outputs, "lu", {"RESULT": "determinant"}, {"out": Tensor(1)})


def _log_determinant(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    places = {"sign": Tensor(1), "logabsdet": Tensor(2)}
    return _factor(runtime, inputs, outputs, "lu", {"RESULT": "logarithm"}, places)


def _householder_factors(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    places = {"out": Tensor(1), "tau": Tensor(2)}
    return _factor(runtime, inputs, outputs, "qr", {"RESULT": "reflections"}, places)


def _qr_factors(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    kept = outputs[1].shape[-2]
    if params["mode"] == "r":
        return _factor(runtime, inputs, outputs[1:], "qr", {"RESULT": "triangle"}, {"r": Tensor(2), "kept": kept})
    args: Arguments = {"q": Tensor(1), "r": Tensor(2), "kept": kept}
    return _factor(runtime, inputs, outputs, "qr", {"RESULT": "factors"}, args)


def _factor(
    runtime: Runtime,
    inputs: Inputs,
    outputs: tuple[Spec, ...],
    kernel: str,
    definitions: Definitions,
    args: Arguments,
) -> Launch | Declined:
    a = inputs[0]
    assert isinstance(a, Spec)
    rows, columns = a.shape[-2:]
    size, batch = size_class(rows, columns), matrix_batch([a], a.shape[:-2])
    if isinstance(batch, Declined):
        return batch
    tile, vector = tile_bytes(size, a.dtype), size * a.dtype.itemsize
    refusal = require_small(rows, columns) or require_local(runtime, tile + vector)
    if refusal is not None:
        return refusal
    in_global = "q" in args and require_local(runtime, 2 * tile + vector) is not None
    definitions = {**definitions, "SIZE": size, "GROUP": group_size(runtime, size), "IN_GLOBAL": in_global}
    args = {**args, **batch_args(batch, "a"), "rows": rows, "columns": columns}
    return launch(runtime, kernel, definitions, {"a": a}, outputs, args, batch.count)


def _cholesky_factor(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
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
    args: Arguments = {
        "out": Tensor(1),
        "info": Tensor(2),
        **batch_args(batch, "a"),
        "rows": rows,
        "out_row": out_row,
        "out_column": out_column,
        "start": params["start"],
    }
    definitions = {"SIZE": size, "GROUP": group_size(runtime, size)}
    return launch(runtime, "cholesky", definitions, {"a": a}, outputs, args, batch.count)


def _row_order(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    pivots, rows = inputs[0], params["rows"]
    assert isinstance(pivots, Spec)
    if pivots.dtype is not dtypes.int32:
        return Declined("the pivots are not int32")
    matrix_step = row_stride(pivots)
    if matrix_step is None:
        return Declined("the batch axes of the pivots do not merge")
    count = outputs[0].size // rows
    args: Arguments = {
        "out": Tensor(1),
        "rows": rows,
        "steps": pivots.shape[-1],
        "first_row": params["first"],
        "start": params["start"],
        "matrix_step": matrix_step,
        "step": pivots.strides[-1],
        "count": count,
    }
    definitions = {"GROUP": _ORDERS}
    return launch(runtime, "row_order", definitions, {"pivots": pivots}, outputs, args, ceil_div(count, _ORDERS))


LOWERINGS = {
    "lu_factors": _lu_factors,
    "determinant": _determinant,
    "log_determinant": _log_determinant,
    "householder_factors": _householder_factors,
    "qr_factors": _qr_factors,
    "cholesky_factor": _cholesky_factor,
    "row_order": _row_order,
}
