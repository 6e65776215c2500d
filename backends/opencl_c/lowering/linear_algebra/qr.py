"""QR factors and Householder reflections: of batches of small matrices, and of tall panels of large ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import Arguments, Tensor, Workspace
from polyhal.backends.common.problems.linear_algebra import (
    PANEL,
    SMALL,
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


def _householder_factors(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    a = inputs[0]
    rows, columns = outputs[0].shape[-2:]
    args: Arguments = {"out": Tensor(1), "tau": Tensor(2), "rows": rows, "columns": columns}
    if rows > SMALL and columns <= PANEL:
        return panel_launch(runtime, "linear_algebra/qr_panel", a, args, Workspace(3))
    return _small(runtime, a, args, "linear_algebra_qr", with_q=False)


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
