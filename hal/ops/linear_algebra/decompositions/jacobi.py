"""Spectra of small matrices by Jacobi's method, with a number for matrices that have none. They never raise an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import Autocast, OpFunction, Output, Sample, Specs, declare, first_tensor
from polyhal.hal.ops.linear_algebra.decompositions.on_host import (
    LAPACK,
    LAPACK_DTYPES,
    LAPACK_ERROR,
    positive_definite,
    require_matrices,
    well_conditioned,
)
from polyhal.hal.ops.tensor_like import Array

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def signs_of_columns(vectors: np.ndarray) -> np.ndarray:
    """The sign of the largest element of each column: vectors are unique up to it."""
    if not vectors.size:
        return np.ones((*vectors.shape[:-2], 1, vectors.shape[-1]))
    place = np.argmax(np.abs(vectors), axis=-2)[..., None, :]
    return np.where(np.take_along_axis(vectors, place, -2) < 0, -1.0, 1.0)


def unique_spectrum(results: tuple[np.ndarray, ...]) -> tuple[Any, ...]:
    """Factors that make eigenvalues, vectors and further results unique."""
    return 1, signs_of_columns(results[1]), *(1 for _ in results[2:])


def unique_factors(results: tuple[np.ndarray, ...]) -> tuple[Any, ...]:
    """Factors that make U, S, Vh and further results unique. Columns that complete a basis are not unique and get a 0."""
    u, s, vh = results[:3]
    k = s.shape[-1]
    signs = signs_of_columns(u[..., :k])
    left, right = np.zeros((*u.shape[:-2], 1, u.shape[-1])), np.zeros((*vh.shape[:-1], 1))
    left[..., : signs.shape[-1]] = signs
    right[..., : signs.shape[-1], :] = np.swapaxes(signs, -2, -1)
    return left, 1, right, *(1 for _ in results[3:])


def _finite(a: np.ndarray) -> np.ndarray:
    return np.asarray(np.isfinite(a).all((-2, -1)))


def _symmetric_jacobi(a: Array, *, uplo: Any = "L", vectors: bool = True) -> Any:
    """Eigenvalues, ascending, and eigenvectors of symmetric matrices, and 1 for those with elements that are not finite, or 0.

    One triangle is read. Without `vectors` they are empty.
    """
    a = np.asarray(a)
    triangle = np.tril(a) if uplo == "L" else np.triu(a)
    finite = _finite(triangle)
    safe = np.where(finite[..., None, None], triangle, 0)
    values, basis = np.linalg.eigh(safe, uplo)
    basis = basis if vectors else np.zeros((*a.shape[:-2], 0, 0), a.dtype)
    return np.where(finite[..., None], values, np.nan), basis, (~finite).astype(np.int32)


def _infer_symmetric(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    require_matrices("eigh", spec, square=True)
    params["vectors"] = bool(params["vectors"])
    basis = spec.shape if params["vectors"] else (*spec.shape[:-2], 0, 0)
    return [(spec.dtype, spec.shape[:-1]), (spec.dtype, basis), (dtypes.int32, spec.shape[:-2])]


symmetric_jacobi: OpFunction = declare(
    _symmetric_jacobi,
    name="symmetric_jacobi",
    family="decomposition",
    infer=_infer_symmetric,
    outputs=("values", "vectors", "info"),
    lowering=LAPACK,
    samples=lambda rng: [
        Sample((positive_definite(rng, *s) - 2 * np.eye(s[-1]),), {"uplo": u, "vectors": v})
        for s, u, v in [((2, 5, 5), "L", True), ((2, 4, 4), "U", True), ((1, 1), "L", True), ((3, 4, 4), "L", False)]
    ],
    dtypes=LAPACK_DTYPES,
    tolerance=LAPACK_ERROR,
    unique=unique_spectrum,
    autocast=Autocast.FLOAT32,
    public=False,
)


def _singular_jacobi(a: Array, *, full_matrices: bool = True, vectors: bool = True) -> Any:
    """U, S and Vh of `a = U @ diag(S) @ Vh`, and 1 for matrices with elements that are not finite, or 0.

    The singular values S are descending. Without `vectors` U and Vh are empty.
    """
    a = np.asarray(a)
    finite = _finite(a)
    u, s, vh = np.linalg.svd(np.where(finite[..., None, None], a, 0), full_matrices)
    if not vectors:
        u = vh = np.zeros((*a.shape[:-2], 0, 0), a.dtype)
    return u, np.where(finite[..., None], s, np.nan), vh, (~finite).astype(np.int32)


def singular_shapes(specs: Specs, params: Params) -> list[Output]:
    """The specs of U, S and Vh."""
    spec = first_tensor(specs)
    *batch, m, n = spec.shape
    k = min(m, n)
    left, right = (m, n) if params["full_matrices"] else (k, k)
    return [(spec.dtype, (*batch, m, left)), (spec.dtype, (*batch, k)), (spec.dtype, (*batch, right, n))]


def _infer_singular(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    require_matrices("svd", spec)
    params["full_matrices"], params["vectors"] = bool(params["full_matrices"]), bool(params["vectors"])
    u, s, vh = singular_shapes(specs, params)
    if not params["vectors"]:
        u = vh = (spec.dtype, (*spec.shape[:-2], 0, 0))
    return [u, s, vh, (dtypes.int32, spec.shape[:-2])]


singular_jacobi: OpFunction = declare(
    _singular_jacobi,
    name="singular_jacobi",
    family="decomposition",
    infer=_infer_singular,
    outputs=("u", "s", "vh", "info"),
    lowering=LAPACK,
    samples=lambda rng: [
        Sample((well_conditioned(rng, *s),), {"full_matrices": f, "vectors": v})
        for s, f, v in [
            ((2, 5, 5), False, True),
            ((2, 5, 3), True, True),
            ((2, 3, 4), True, True),
            ((2, 6, 3), True, False),
        ]
    ],
    dtypes=LAPACK_DTYPES,
    tolerance=LAPACK_ERROR,
    unique=unique_factors,
    autocast=Autocast.FLOAT32,
    public=False,
)
