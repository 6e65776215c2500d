"""Factorizations of matrices, systems of equations, determinants, eigenvalues and singular values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal import linalg
from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, zeros

if TYPE_CHECKING:
    from polyhal.tensor import Tensor


def _transposed(x: Tensor) -> Any:
    return F["transpose"](x, -2, -1)


def _factors(a: Tensor) -> Any:
    """Return LU factors and pivots for PyTorch's gradients of determinants; a contiguous `a` is transposed first."""
    return tuple(linalg.lu_factor_ex(_transposed(a) if a.spec.is_contiguous else a))[:2]


@aten("_linalg_solve_ex")
def solve_ex(a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    """Return the solution, factors and pivots for the gradient, and `info`."""
    result, info = linalg.solve_ex(a, b, left=left, check_errors=check_errors)
    data, pivots, _ = linalg.lu_factor_ex(a)
    return result, data, pivots, info


@aten("triangular_solve")
def triangular_solve(
    b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    """Return the solution, and the matrix broadcast to the batch."""
    batch = F["matmul"](a, b).shape[:-2]
    kept = F["broadcast_to"](a, (*batch, *a.shape[-2:]))
    matrix, is_upper = (_transposed(a), not upper) if transpose else (a, upper)
    return linalg.solve_triangular(matrix, b, upper=is_upper, unitriangular=unitriangular), F["copy"](kept)


@aten("_linalg_det")
def det(a: Tensor) -> Any:
    """Return determinants, and factors and pivots for the gradient."""
    return (linalg.det(a), *_factors(a))


@aten("_linalg_slogdet")
def slogdet(a: Tensor) -> Any:
    """Return signs and logarithms of determinants, and factors and pivots for the gradient."""
    return (*linalg.slogdet(a), *_factors(a))


@aten("_linalg_svd")
def svd(a: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> Any:
    """Return U, singular values and Vh; U and Vh are empty if `compute_uv` is False."""
    if compute_uv:
        return tuple(linalg.svd(a, full_matrices))
    empty = zeros((0,), a.dtype, a.device)
    return empty, linalg.svdvals(a), empty


@aten("_linalg_eigh")
def eigh(a: Tensor, uplo: str = "L", compute_v: bool = True) -> Any:
    """Return eigenvalues and eigenvectors; the latter are empty if `compute_v` is False."""
    if compute_v:
        return tuple(linalg.eigh(a, uplo))
    return linalg.eigvalsh(a, uplo), zeros((0,), a.dtype, a.device)
