"""Factorizations of matrices, systems of equations, determinants, eigenvalues and singular values."""

from __future__ import annotations

from typing import Any

from polyhal import linalg
from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, zeros


def _transposed(x: Any) -> Any:
    return F["transpose"](x, -2, -1)


def _factors(a: Any) -> Any:
    """Return LU factors and pivots for PyTorch's gradients of determinants; a contiguous `a` is transposed first."""
    return tuple(linalg.lu_factor_ex(_transposed(a) if a.spec.is_contiguous else a))[:2]


@aten("linalg_cholesky_ex")
def cholesky_ex(a: Any, *, upper: bool = False, check_errors: bool = False) -> Any:
    return tuple(linalg.cholesky_ex(a, upper=upper, check_errors=check_errors))


@aten("linalg_lu_factor_ex")
def lu_factor_ex(a: Any, *, pivot: bool = True, check_errors: bool = False) -> Any:
    return tuple(linalg.lu_factor_ex(a, pivot=pivot, check_errors=check_errors))


@aten("linalg_lu")
def lu(a: Any, *, pivot: bool = True) -> Any:
    return tuple(linalg.lu(a, pivot=pivot))


@aten("linalg_lu_solve")
def lu_solve(data: Any, pivots: Any, b: Any, *, left: bool = True, adjoint: bool = False) -> Any:
    return linalg.lu_solve(data, pivots, b, left=left, adjoint=adjoint)


@aten("linalg_ldl_factor_ex")
def ldl_factor_ex(a: Any, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    return tuple(linalg.ldl_factor_ex(a, hermitian=hermitian, check_errors=check_errors))


@aten("linalg_ldl_solve")
def ldl_solve(data: Any, pivots: Any, b: Any, *, hermitian: bool = False) -> Any:
    return linalg.ldl_solve(data, pivots, b, hermitian=hermitian)


@aten("linalg_qr")
def qr(a: Any, mode: str = "reduced") -> Any:
    return tuple(linalg.qr(a, mode))


@aten("linalg_householder_product")
def householder_product(a: Any, tau: Any) -> Any:
    return linalg.householder_product(a, tau)


@aten("linalg_inv_ex")
def inv_ex(a: Any, *, check_errors: bool = False) -> Any:
    return tuple(linalg.inv_ex(a, check_errors=check_errors))


@aten("_linalg_solve_ex")
def solve_ex(a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    """Return the solution, factors and pivots for the gradient, and `info`."""
    result, info = linalg.solve_ex(a, b, left=left, check_errors=check_errors)
    data, pivots, _ = linalg.lu_factor_ex(a)
    return result, data, pivots, info


@aten("linalg_solve_triangular")
def solve_triangular(a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    return linalg.solve_triangular(a, b, upper=upper, left=left, unitriangular=unitriangular)


@aten("triangular_solve")
def triangular_solve(b: Any, a: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Any:
    """Return the solution, and the matrix broadcast to the batch."""
    batch = F["matmul"](a, b).shape[:-2]
    kept = F["broadcast_to"](a, (*batch, *a.shape[-2:]))
    matrix, is_upper = (_transposed(a), not upper) if transpose else (a, upper)
    return linalg.solve_triangular(matrix, b, upper=is_upper, unitriangular=unitriangular), F["copy"](kept)


@aten("_linalg_det")
def det(a: Any) -> Any:
    """Return determinants, and factors and pivots for the gradient."""
    return (linalg.det(a), *_factors(a))


@aten("_linalg_slogdet")
def slogdet(a: Any) -> Any:
    """Return signs and logarithms of determinants, and factors and pivots for the gradient."""
    return (*linalg.slogdet(a), *_factors(a))


@aten("linalg_matrix_exp")
def matrix_exp(a: Any) -> Any:
    return linalg.matrix_exp(a)


@aten("_linalg_svd")
def svd(a: Any, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> Any:
    """Return U, singular values and Vh; U and Vh are empty if `compute_uv` is False."""
    if compute_uv:
        return tuple(linalg.svd(a, full_matrices))
    empty = zeros((0,), a.dtype, a.device)
    return empty, linalg.svdvals(a), empty


@aten("_linalg_eigh")
def eigh(a: Any, uplo: str = "L", compute_v: bool = True) -> Any:
    """Return eigenvalues and eigenvectors; the latter are empty if `compute_v` is False."""
    if compute_v:
        return tuple(linalg.eigh(a, uplo))
    return linalg.eigvalsh(a, uplo), zeros((0,), a.dtype, a.device)


@aten("linalg_lstsq")
def lstsq(a: Any, b: Any, rcond: float | None = None, *, driver: str | None = None) -> Any:
    return tuple(linalg.lstsq(a, b, rcond, driver=driver))
