"""Spectra of batches of small matrices by Jacobi's method."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import Arguments, Tensor
from polyhal.backends.common.problems.linear_algebra import (
    matrix_batch,
    require_small,
    size_class,
    tile_bytes,
    transposed,
)
from polyhal.backends.opencl_c.lowering.linear_algebra.groups import batch_args, require_local
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Inputs = tuple[InputSpec | None, ...]
_MAX_GROUP, _ITEMS_PER_COLUMN, _TEAM = 256, 4, 8


def _symmetric_jacobi(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    a = inputs[0]
    assert isinstance(a, Spec)
    args: Arguments = {"values": Tensor(1), "info": Tensor(3), "rows": a.shape[-1]}
    if params["vectors"]:
        args = {**args, "vectors": Tensor(2)}
    a = a if params["uplo"] == "L" else transposed(a)
    return _launch(runtime, "linear_algebra/jacobi_eigen", a, args, params["vectors"], {})


def _singular_jacobi(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    a, (u, _, vh, _) = inputs[0], outputs
    assert isinstance(a, Spec)
    # The kernel takes matrices with at least as many rows as columns: others are transposed, and their vectors exchanged.
    wide = a.shape[-1] > a.shape[-2]
    if wide:
        a = transposed(a)
    rows, columns = a.shape[-2:]
    args: dict[str, Tensor | int] = {"values": Tensor(2), "info": Tensor(4), "rows": rows, "columns": columns}
    if params["vectors"]:
        kept = rows if params["full_matrices"] else columns
        left = (vh.strides[-1], vh.strides[-2]) if wide else u.strides[-2:]
        right = u.strides[-2:] if wide else (vh.strides[-1], vh.strides[-2])
        args |= {
            "left": Tensor(3 if wide else 1),
            "right": Tensor(1 if wide else 3),
            "left_matrix": rows * kept,
            "left_row": left[0],
            "left_column": left[1],
            "right_matrix": columns * columns,
            "right_row": right[0],
            "right_column": right[1],
            "kept": kept,
        }
    return _launch(runtime, "linear_algebra/jacobi_svd", a, args, params["vectors"], {"TEAM": _TEAM})


def _launch(
    runtime: Runtime, file: str, a: Spec, args: Arguments, with_vectors: bool, definitions: dict[str, int]
) -> Launch | Declined:
    features, (rows, columns) = runtime.features, a.shape[-2:]
    if features.cpu:
        return Declined(
            "LAPACK's reductions take fewer operations than rotations, which processors do not run in parallel"
        )
    size, batch = size_class(rows, columns), matrix_batch([a], a.shape[:-2])
    if isinstance(batch, Declined):
        return batch
    group = min(_ITEMS_PER_COLUMN * size, _MAX_GROUP, features.max_group_size)
    nbytes = (1 + with_vectors) * tile_bytes(size, a.dtype) + (4 * size + 3 * group) * a.dtype.itemsize
    return (
        require_small(rows, columns)
        or require_local(runtime, nbytes)
        or runtime.launch(
            file,
            {"DTYPE": a.dtype.name, "SIZE": size, "GROUP": group, "WITH_VECTORS": with_vectors, **definitions},
            {"a": Tensor(0), **batch_args(batch, "a"), **args},
            (batch.count * group,),
            (group,),
        )
    )


LOWERINGS = {"symmetric_jacobi": _symmetric_jacobi, "singular_jacobi": _singular_jacobi}
