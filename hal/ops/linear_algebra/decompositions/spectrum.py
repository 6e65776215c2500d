"""Eigenvalues of symmetric matrices and singular values, with and without their vectors.

Gradients of vectors need distinct values, gradients of values do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal.errors import LinAlgError, message
from polyhal.hal.layout import Spec
from polyhal.hal.ops.declare import (
    Autocast,
    DeviceProgram,
    ErrorSample,
    OnDevice,
    OpFunction,
    Output,
    Sample,
    Specs,
    declare,
    first_tensor,
)
from polyhal.hal.ops.layout.axes import unsqueeze
from polyhal.hal.ops.layout.diagonal import embed_diagonal, identity_like
from polyhal.hal.ops.linear_algebra.decompositions.blocks import is_small
from polyhal.hal.ops.linear_algebra.decompositions.jacobi import (
    singular_jacobi,
    singular_shapes,
    symmetric_jacobi,
    unique_factors,
    unique_spectrum,
)
from polyhal.hal.ops.linear_algebra.decompositions.on_host import (
    LAPACK,
    LAPACK_DTYPES,
    LAPACK_ERROR,
    positive_definite,
    require_matrices,
    t,
    well_conditioned,
)
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.tensor_like import Array, TensorLike
from polyhal.hal.protocol import Declined

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def _diagonal(x: TensorLike) -> Any:
    """Square matrices with the last axis of `x` as diagonal."""
    return embed_diagonal(x, (*x.shape, x.shape[-1]), 0, -2, -1)


def _converged(name: str, compute: Any) -> Any:
    try:
        return compute()
    except np.linalg.LinAlgError as error:
        raise LinAlgError(message(name, "the iteration does not converge", expected="finite elements")) from error


def _refuse(name: str) -> Callable[[np.ndarray], None]:
    """Return a check of the numbers of failed matrices."""

    def refuse(info: np.ndarray) -> None:
        if info.any():
            raise LinAlgError(message(name, "the iteration does not converge", expected="finite elements"))

    return refuse


def _symmetric_spectrum(a: Array, *, uplo: Any = "L") -> Any:
    """Eigenvalues, ascending, and eigenvectors as columns of symmetric matrices. One triangle is read."""
    return tuple(_converged("eigh", lambda: np.linalg.eigh(np.asarray(a), uplo)))


def _infer_symmetric(specs: Specs, params: Params) -> list[Output]:
    spec = first_tensor(specs)
    require_matrices("eigh", spec, square=True)
    if params["uplo"] not in ("L", "U"):
        raise ValueError(f"UPLO {params['uplo']!r}; expected 'L' or 'U'")
    return [(spec.dtype, spec.shape[:-1]), (spec.dtype, spec.shape)]


_LARGE = Declined("the matrices are large")


def _symmetric_program(specs: Specs, params: Params) -> DeviceProgram | Declined:
    if not is_small(first_tensor(specs)):
        return _LARGE
    return DeviceProgram(lambda a: symmetric_jacobi(a, params["uplo"]), _refuse("eigh"))


def _symmetric_gradient(
    g_values: TensorLike | None, g_vectors: TensorLike | None, values: TensorLike, vectors: TensorLike
) -> Any:
    """dA = V (diag(dw) + V^T dV / (w_j - w_i)) V^T (Giles 2008)."""
    inner = None if g_values is None else _diagonal(g_values)
    if g_vectors is not None:
        gaps = unsqueeze(values, -2) - unsqueeze(values, -1) + identity_like(vectors)
        turned = op_matmul(t(vectors), g_vectors)
        turned = turned * (1 - identity_like(vectors)) / gaps
        inner = turned if inner is None else inner + turned
    return op_matmul(op_matmul(vectors, inner), t(vectors))


def _symmetric_samples(rng: np.random.Generator) -> list[Sample]:
    # The reference reads one triangle, while gradients are those of all elements: finite differences would not agree.
    return [
        Sample((positive_definite(rng, *s),), {"uplo": u}, differentiable=False)
        for s, u in [((2, 4, 4), "L"), ((2, 3, 3), "U"), ((0, 0), "L")]
    ]


symmetric_spectrum: OpFunction = declare(
    _symmetric_spectrum,
    name="symmetric_spectrum",
    family="decomposition",
    infer=_infer_symmetric,
    outputs=("values", "vectors"),
    lowering=(OnDevice(_symmetric_program), LAPACK),
    unique=unique_spectrum,
    gradient=_symmetric_gradient,
    samples=_symmetric_samples,
    errors=[ErrorSample((np.eye(2),), {"uplo": "X"}, ValueError, "expected 'L' or 'U'")],
    dtypes=LAPACK_DTYPES,
    tolerance=LAPACK_ERROR,
    autocast=Autocast.FLOAT32,
    public=False,
)


def _symmetric_eigenvalues(a: Array, *, uplo: Any = "L") -> Any:
    """Eigenvalues, ascending, of symmetric matrices. One triangle is read."""
    return _converged("eigvalsh", lambda: np.linalg.eigvalsh(np.asarray(a), uplo))


def _eigenvalues_program(specs: Specs, params: Params) -> DeviceProgram | Declined:
    if not is_small(first_tensor(specs)):
        return _LARGE
    return DeviceProgram(lambda a: symmetric_jacobi(a, params["uplo"], False)[::2], _refuse("eigvalsh"))


def _eigenvalues_gradient(g: TensorLike, a: TensorLike, *, uplo: str) -> Any:
    _, vectors = symmetric_spectrum(a, uplo)
    return op_matmul(vectors * unsqueeze(g, -2), t(vectors))


symmetric_eigenvalues: OpFunction = declare(
    _symmetric_eigenvalues,
    name="symmetric_eigenvalues",
    family="decomposition",
    infer=lambda specs, params: _infer_symmetric(specs, params)[:1],
    lowering=(OnDevice(_eigenvalues_program), LAPACK),
    gradient=_eigenvalues_gradient,
    samples=_symmetric_samples,
    errors=[ErrorSample((np.zeros((3, 2)),), {}, ValueError, r"expected \(..., n, n\)")],
    dtypes=LAPACK_DTYPES,
    tolerance=LAPACK_ERROR,
    autocast=Autocast.FLOAT32,
    public=False,
)


def _singular_factors(a: Array, *, full_matrices: bool = True) -> Any:
    """U, S and Vh of `a = U @ diag(S) @ Vh`, with the singular values S descending."""
    return tuple(_converged("svd", lambda: np.linalg.svd(np.asarray(a), full_matrices)))


def _infer_singular(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    require_matrices("svd", spec)
    params["full_matrices"] = bool(params["full_matrices"])
    return singular_shapes(specs, params)


def _singular_program(specs: Specs, params: Params) -> DeviceProgram | Declined:
    if not is_small(first_tensor(specs)):
        return _LARGE
    return DeviceProgram(lambda a: singular_jacobi(a, params["full_matrices"]), _refuse("svd"))


def _singular_gradient(
    g_u: TensorLike | None,
    g_s: TensorLike | None,
    g_vh: TensorLike | None,
    u: TensorLike,
    s: TensorLike,
    vh: TensorLike,
) -> Any:
    """Townsend 2016: with E_ij = s_j^2 - s_i^2, and projections on the complement of the span of U and V where A is not square.

    The further columns of full matrices get no gradient: they are not determined.
    """
    m, n, k = u.shape[-2], vh.shape[-1], s.shape[-1]
    u, vh = u[..., :k], vh[..., :k, :]
    inner = None if g_s is None else _diagonal(g_s)
    columns, rows = unsqueeze(s, -2), unsqueeze(s, -1)
    one = identity_like(inner if inner is not None else u[..., :k, :])
    gaps = (columns - rows) * (columns + rows) + one
    result = None
    if g_u is not None:
        g_u = g_u[..., :k]
        turned = op_matmul(t(u), g_u)
        inner = _plus(inner, (turned - t(turned)) / gaps * columns)
        if m > k:
            scaled = g_u / columns
            result = op_matmul(scaled - op_matmul(u, op_matmul(t(u), scaled)), vh)
    if g_vh is not None:
        g_vh = g_vh[..., :k, :]
        turned = op_matmul(vh, t(g_vh))
        inner = _plus(inner, (turned - t(turned)) / gaps * rows)
        if n > k:
            scaled = g_vh / rows
            result = _plus(result, op_matmul(u, scaled - op_matmul(op_matmul(scaled, t(vh)), vh)))
    return _plus(result, op_matmul(op_matmul(u, inner), vh))


def _plus(x: TensorLike | None, y: TensorLike) -> Any:
    return y if x is None else x + y


def _singular_samples(rng: np.random.Generator) -> list[Sample]:
    def sample(shape: tuple[int, ...], full: bool) -> Sample:
        return Sample((well_conditioned(rng, *shape),), {"full_matrices": full}, differentiable=not full)

    return [
        sample((2, 4, 4), False),
        sample((2, 5, 3), False),
        sample((2, 3, 4), False),
        sample((2, 4, 2), True),
        sample((0, 3), False),
    ]


singular_factors: OpFunction = declare(
    _singular_factors,
    name="singular_factors",
    family="decomposition",
    infer=_infer_singular,
    outputs=("u", "s", "vh"),
    lowering=(OnDevice(_singular_program), LAPACK),
    unique=unique_factors,
    gradient=_singular_gradient,
    samples=_singular_samples,
    errors=[ErrorSample((np.zeros(3),), {}, ValueError, r"expected \(..., m, n\)")],
    dtypes=LAPACK_DTYPES,
    tolerance=LAPACK_ERROR,
    autocast=Autocast.FLOAT32,
    public=False,
)


def _singular_values(a: Array) -> Any:
    """The singular values, descending."""
    return _converged("svdvals", lambda: np.linalg.svd(np.asarray(a), compute_uv=False))


def _infer_values(specs: Specs, params: Params) -> list[Output]:
    spec: Spec = first_tensor(specs)
    require_matrices("svdvals", spec)
    return [(spec.dtype, (*spec.shape[:-2], min(spec.shape[-2:])))]


def _values_program(specs: Specs, params: Params) -> DeviceProgram | Declined:
    if not is_small(first_tensor(specs)):
        return _LARGE
    return DeviceProgram(lambda a: singular_jacobi(a, False, False)[1::2], _refuse("svdvals"))


def _values_gradient(g: TensorLike, a: TensorLike) -> Any:
    u, _, vh = singular_factors(a, False)
    return op_matmul(u * unsqueeze(g, -2), vh)


singular_values: OpFunction = declare(
    _singular_values,
    name="singular_values",
    family="decomposition",
    infer=_infer_values,
    lowering=(OnDevice(_values_program), LAPACK),
    gradient=_values_gradient,
    samples=lambda rng: [Sample((well_conditioned(rng, *s),)) for s in [(2, 4, 4), (2, 3, 5), (3, 0)]],
    errors=[ErrorSample((np.zeros(3),), {}, ValueError, r"expected \(..., m, n\)")],
    dtypes=LAPACK_DTYPES,
    tolerance=LAPACK_ERROR,
    autocast=Autocast.FLOAT32,
    public=False,
)
