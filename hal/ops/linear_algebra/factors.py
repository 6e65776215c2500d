"""Cholesky, LU and QR factors, and solutions of systems from them."""

from __future__ import annotations

from typing import Any

from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.layout.axes import unsqueeze
from polyhal.hal.ops.layout.diagonal import identity_like
from polyhal.hal.ops.layout.triangle import tril, triu
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.linear_algebra.decompositions.cholesky import cholesky_factor
from polyhal.hal.ops.linear_algebra.decompositions.ldl import ldl_factors, ldl_solution
from polyhal.hal.ops.linear_algebra.decompositions.lu import lu_factors, permutation_matrix
from polyhal.hal.ops.linear_algebra.decompositions.on_host import t
from polyhal.hal.ops.linear_algebra.decompositions.qr import householder_factors, qr_factors, reflectors
from polyhal.hal.ops.linear_algebra.decompositions.triangular import solve_triangular_left
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.linear_algebra.results import (
    CholeskyExResult,
    GeqrfResult,
    LDLFactorExResult,
    LDLFactorResult,
    LUFactorExResult,
    LUFactorResult,
    LUResult,
    QRResult,
)
from polyhal.hal.ops.tensor_like import TensorLike


@composite("linalg.", aten=".default")
def cholesky(x: TensorLike, upper: bool = False) -> Any:
    """The lower triangular L with `x = L @ L.mH`, or the upper U with `x = U.mH @ U`, of symmetric or Hermitian matrices.

    That triangle of `x` is read. Raises LinAlgError if a matrix is not positive definite.

    >>> polyhal.linalg.cholesky(polyhal.tensor([[4.0, 0.0], [0.0, 9.0]])).tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    return cholesky_factor(x, upper)[0]


@composite("linalg.", public=False, aten="linalg_cholesky_ex")
def cholesky_ex(A: TensorLike, *, upper: bool = False, check_errors: bool = False) -> CholeskyExResult:
    """As `cholesky`, with each matrix's first minor that is not positive definite, or 0.

    Raises LinAlgError only if `check_errors`.
    """
    return CholeskyExResult(*cholesky_factor(A, upper, check_errors))


@composite(aten="_cholesky_solve_helper")
def cholesky_solve(x: TensorLike, L: TensorLike, upper: bool = False) -> Any:
    """The solution X of `A @ X = x` from the Cholesky factor of `A`. Takes (..., m, n) and the factor (..., m, m)."""
    first, second = (t(L), L) if upper else (L, t(L))
    return solve_triangular_left(second, solve_triangular_left(first, x, False), True)


@composite(aten=".default")
def cholesky_inverse(x: TensorLike, upper: bool = False) -> Any:
    """The inverse of a symmetric matrix from its Cholesky factor."""
    return cholesky_solve(identity_like(x), x, upper)


@composite("linalg.", public=False)
def lu_factor(A: TensorLike, *, pivot: bool = True) -> LUFactorResult:
    """L and U of `A = P @ L @ U` in one matrix, and pivots numbered from 1. Raises LinAlgError for singular matrices."""
    out, pivots, _ = lu_factors(A, pivot, True)
    return LUFactorResult(out, pivots)


@composite("linalg.", public=False, aten="linalg_lu_factor_ex")
def lu_factor_ex(A: TensorLike, *, pivot: bool = True, check_errors: bool = False) -> LUFactorExResult:
    """As `lu_factor`, with the first zero pivot of each matrix, or 0. Raises LinAlgError only if `check_errors`."""
    return LUFactorExResult(*lu_factors(A, pivot, check_errors))


@composite(method=False, aten=".default")
def lu_unpack(
    LU_data: TensorLike, LU_pivots: TensorLike, unpack_data: bool = True, unpack_pivots: bool = True
) -> LUResult:
    """P, L and U of matrices (..., m, n) from the result of `linalg.lu_factor`; parts that are not unpacked are empty."""
    m, n = LU_data.shape[-2:]
    k = min(m, n)
    empty = reshape(LU_data.detach(), (LU_data.spec.size,))[:0]
    lower = upper = matrix = empty
    if unpack_data:
        lower = tril(LU_data[..., :k], -1)
        lower, upper = lower + identity_like(lower), triu(LU_data[..., :k, :])
    if unpack_pivots:
        matrix = permutation_matrix(LU_pivots, m, LU_data.dtype)
    return LUResult(matrix, lower, upper)


@composite("linalg.", public=False, aten="linalg_lu")
def lu(A: TensorLike, *, pivot: bool = True) -> LUResult:
    """P, L and U with `A = P @ L @ U`: a permutation, ones on the diagonal of L, upper triangular U."""
    out, pivots, _ = lu_factors(A, pivot, False)
    matrix, lower, upper = lu_unpack(out, pivots)
    return LUResult(matrix, lower, upper)


@composite("linalg.", public=False, aten="linalg_lu_solve")
def lu_solve(LU: TensorLike, pivots: TensorLike, B: TensorLike, *, left: bool = True, adjoint: bool = False) -> Any:
    """The solution X of `A @ X = B` from the `lu_factor` of `A` (..., n, n), for `B` (..., n, k).

    Of `X @ A = B` if not `left`, and with the transposed `A` if `adjoint`.
    """
    if not left:
        return t(lu_solve(LU, pivots, t(B), adjoint=not adjoint))
    matrix = permutation_matrix(pivots, LU.shape[-1], LU.dtype)
    if adjoint:
        out = solve_triangular_left(t(LU), B, False)
        return op_matmul(matrix, solve_triangular_left(t(LU), out, True, True))
    out = solve_triangular_left(LU, op_matmul(t(matrix), B), False, True)
    return solve_triangular_left(LU, out, True)


@composite("linalg.", public=False)
def ldl_factor(A: TensorLike, *, hermitian: bool = False) -> LDLFactorResult:
    """L and D of `A = L @ D @ L.T` for symmetric matrices, with LAPACK's pivots. Raises LinAlgError for singular matrices.

    The lower triangle is read. There are no gradients. `hermitian` is for complex numbers and has no effect.
    """
    out, pivots, _ = ldl_factors(A.detach(), True)
    return LDLFactorResult(out, pivots)


@composite("linalg.", public=False, aten="linalg_ldl_factor_ex")
def ldl_factor_ex(A: TensorLike, *, hermitian: bool = False, check_errors: bool = False) -> LDLFactorExResult:
    """As `ldl_factor`, with the first zero pivot of each matrix, or 0. Raises LinAlgError only if `check_errors`."""
    return LDLFactorExResult(*ldl_factors(A.detach(), check_errors))


@composite("linalg.", public=False, aten="linalg_ldl_solve")
def ldl_solve(LD: TensorLike, pivots: TensorLike, B: TensorLike, *, hermitian: bool = False) -> Any:
    """The solution X of `A @ X = B` from the `ldl_factor` of `A`. There are no gradients."""
    return ldl_solution(LD.detach(), pivots, B.detach())


@composite("linalg.", public=False, aten="linalg_qr")
def qr(A: TensorLike, mode: str = "reduced") -> QRResult:
    """Q with orthonormal columns and the upper triangular R with `A = Q @ R` of matrices (..., m, n).

    `mode` "complete" makes Q square; "r" leaves it empty. Gradients need linearly independent first min(m, n) columns.

    >>> polyhal.linalg.qr(polyhal.ones(4, 2)).R.shape
    (2, 2)
    """
    return QRResult(*qr_factors(A, mode))


@composite(aten=".default")
def geqrf(x: TensorLike) -> GeqrfResult:
    """R above and Householder vectors below the diagonal, and their scales tau; see `linalg.householder_product`."""
    return GeqrfResult(*householder_factors(x))


def _require_reflections(name: str, A: TensorLike, tau: TensorLike) -> None:
    k = tau.shape[-1]
    if A.ndim < 2 or tau.ndim != A.ndim - 1 or k > min(A.shape[-2:]):
        problem = f"shapes {tuple(A.shape)} and {tuple(tau.shape)}"
        raise ShapeError(message(name, problem, expected="(..., m, n) and (..., k) with k <= m, n"))


@composite("linalg.", public=False, aten="linalg_householder_product")
def householder_product(A: TensorLike, tau: TensorLike) -> Any:
    """The first n columns of the product of k Householder reflections `I - tau_i v_i v_i^T`.

    A (..., m, n) has the vectors below the diagonal, as `geqrf` leaves them; tau is (..., k).
    """
    _require_reflections("householder_product", A, tau)
    vectors, mixed = reflectors(A, tau)
    right = t(vectors[..., : A.shape[-1], :]) * unsqueeze(tau, -1)
    return identity_like(A) - op_matmul(vectors, solve_triangular_left(mixed, right, True, True))


@composite()
def orgqr(x: TensorLike, tau: TensorLike) -> Any:
    """The first columns of a product of Householder reflections, as `linalg.householder_product`."""
    return householder_product(x, tau)


@composite(aten=".default")
def ormqr(x: TensorLike, tau: TensorLike, other: TensorLike, left: bool = True, transpose: bool = False) -> Any:
    """The product of the square Q of Householder reflections `x` and `tau` with `other`, from the left or the right."""
    if not left:
        return t(ormqr(x, tau, t(other), True, not transpose))
    _require_reflections("ormqr", x, tau)
    vectors, mixed = reflectors(x, tau)
    inner, scale = op_matmul(t(vectors), other), unsqueeze(tau, -1)
    if transpose:
        inner = solve_triangular_left(t(mixed), inner, False, True) * scale
    else:
        inner = solve_triangular_left(mixed, inner * scale, True, True)
    return other - op_matmul(vectors, inner)
