"""The pseudo-inverse of Moore and Penrose."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal.ops.declare import Autocast, ErrorSample, OpFunction, Output, Sample, Specs, declare, first_tensor
from polyhal.hal.ops.linear_algebra.decompositions.on_host import (
    LAPACK,
    LAPACK_DTYPES,
    LAPACK_ERROR,
    require_matrices,
    t,
    well_conditioned,
)
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.tensor_like import Array, TensorLike


def default_tolerance(
    dtype: Any, shape: tuple[int, ...], atol: Array | int | None, rtol: Array | int | None
) -> tuple[Any, Any]:
    """The absolute and the relative tolerance of singular values, with PyTorch's defaults for None.

    The relative one is max(m, n) units of the dtype unless there is a positive absolute one.
    """
    if rtol is None:
        given = np.asarray(0.0 if atol is None else atol)
        rtol = np.where(given > 0, 0.0, float(np.finfo(dtype).eps) * max(shape[-2:], default=0))
    return 0.0 if atol is None else atol, rtol


def _pseudo_inverse(
    a: Array, atol: Array | int | None = None, rtol: Array | int | None = None, *, hermitian: bool = False
) -> Any:
    """The pseudo-inverse of matrices, in which singular values up to max(atol, rtol * the largest) count as 0.

    `hermitian` says that matrices are symmetric: their lower triangle is read.
    """
    a = np.asarray(a)
    if 0 in a.shape[-2:]:
        return np.zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
    if hermitian:
        values, vectors = np.linalg.eigh(a)
        left, right, size = vectors, np.swapaxes(vectors, -2, -1), np.abs(values)
    else:
        u, values, vh = np.linalg.svd(a, full_matrices=False)
        left, right, size = np.swapaxes(vh, -2, -1), np.swapaxes(u, -2, -1), values
    absolute, relative = (np.asarray(x)[..., None] for x in default_tolerance(a.dtype, a.shape, atol, rtol))
    kept = size > np.maximum(absolute, relative * size.max(axis=-1, keepdims=True))
    inverse = np.where(kept, 1 / np.where(kept, values, 1), 0).astype(a.dtype)
    return (left * inverse[..., None, :]) @ right


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    require_matrices("pinv", spec, square=params["hermitian"])
    *batch, m, n = spec.shape
    return [(spec.dtype, (*batch, n, m))]


def _gradient(g: TensorLike, a: TensorLike, out: TensorLike) -> Any:
    """Golub and Pereyra 1973, for matrices near `a` of the same rank."""
    g, back = t(g), t(out)
    inner = op_matmul(g, out)
    outer = op_matmul(inner, back)
    result = outer - t(op_matmul(out, inner)) - op_matmul(op_matmul(a, out), outer)
    return result + op_matmul(op_matmul(back, out), g - op_matmul(inner, a))


pseudo_inverse: OpFunction = declare(
    _pseudo_inverse,
    name="pseudo_inverse",
    family="decomposition",
    infer=_infer,
    lowering=LAPACK,
    gradient=_gradient,
    samples=lambda rng: [
        *(Sample((well_conditioned(rng, *s), None, None)) for s in [(2, 4, 3), (2, 3, 4), (2, 3, 3), (0, 2)]),
        Sample((np.diag([2.0, 0.5, 0.0]), 1.0, 0.0), differentiable=False),
        Sample((np.diag([2.0, -1.0]), None, 0.25), {"hermitian": True}, differentiable=False),
    ],
    errors=[ErrorSample((np.zeros(3), None, None), {}, ValueError, r"expected \(..., m, n\)")],
    dtypes=LAPACK_DTYPES,
    tolerance=LAPACK_ERROR,
    autocast=Autocast.FLOAT32,
    public=False,
)
