"""Solutions of batches of small systems of equations, and inverses of small matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import power_of_two_at_least
from polyhal.backends.common.launching.launch import Arguments, Tensor
from polyhal.backends.common.problems.linear_algebra import CHECKED, matrix_batch, require_small, size_class, tile_bytes
from polyhal.backends.opencl_c.lowering.linear_algebra.groups import batch_args, group_size, require_local
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Inputs = tuple[InputSpec | None, ...]
_MAX_RIGHT = 64
"""The most right sides that a group eliminates with its matrix; more are solved from the factors."""


def _solve_system(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    a, b = inputs
    assert isinstance(a, Spec)
    assert isinstance(b, Spec)
    if a.shape[:-2] != outputs[0].shape[:-2]:
        return Declined("one matrix has several systems: it is factored once")
    return _launch(runtime, (a, b), outputs[0], params, {"b": Tensor(1), "out": Tensor(2), "info": Tensor(3)})


def _inverse_matrix(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    (a,) = inputs
    assert isinstance(a, Spec)
    return _launch(runtime, (a,), outputs[0], params, {"out": Tensor(1), "info": Tensor(2)})


def _launch(
    runtime: Runtime, operands: tuple[Spec, ...], out: Spec, params: Params, args: Arguments
) -> Launch | Declined:
    if params["check"]:
        return CHECKED
    rows, columns = out.shape[-2:]
    batch = matrix_batch(operands, out.shape[:-2])
    if isinstance(batch, Declined):
        return batch
    size, right = size_class(rows), power_of_two_at_least(columns)
    nbytes = tile_bytes(size, out.dtype) + 4 * size
    refusal = require_small(rows, min(columns, rows)) or require_local(runtime, nbytes)
    if refusal is None and columns > _MAX_RIGHT:
        refusal = Declined(f"{columns} right sides: they are solved from the factors")
    if refusal is not None:
        return refusal
    in_global = require_local(runtime, nbytes + size * (right + 1) * out.dtype.itemsize) is not None
    group = group_size(runtime, max(size, min(right, size)))
    return runtime.launch(
        "linear_algebra/solve",
        {
            "DTYPE": out.dtype.name,
            "SIZE": size,
            "RIGHT_SIZE": 1 if in_global else right,
            "IN_GLOBAL": in_global,
            "INVERSE": len(operands) == 1,
            "GROUP": group,
        },
        {"a": Tensor(0), **args, **batch_args(batch, "a", "b"), "rows": rows, "columns": columns},
        (batch.count * group,),
        (group,),
    )


LOWERINGS = {"solve_system": _solve_system, "inverse_matrix": _inverse_matrix}
