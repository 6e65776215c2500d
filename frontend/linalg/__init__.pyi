"""Generated from the op declarations by `make generate`; do not edit."""

from typing import Any

from polyhal.hal.errors import LinAlgError as LinAlgError
from polyhal.hal.ops.linear_algebra.results import (
    CholeskyExResult,
    EighResult,
    EigResult,
    InvExResult,
    LDLFactorExResult,
    LDLFactorResult,
    LstsqResult,
    LUFactorExResult,
    LUFactorResult,
    LUResult,
    QRResult,
    SlogdetResult,
    SolveExResult,
    SVDResult,
)
from polyhal.linalg.low_rank import pca_lowrank as pca_lowrank
from polyhal.linalg.low_rank import svd_lowrank as svd_lowrank
from polyhal.tensor import Tensor

def cholesky(x: Any, upper: bool = ...) -> Tensor:
    """The lower triangular L with `x = L @ L.mH`, or the upper U with `x = U.mH @ U`, of symmetric or Hermitian matrices."""

def cholesky_ex(A: Any, *, upper: bool = ..., check_errors: bool = ...) -> CholeskyExResult:
    """As `cholesky`, with each matrix's first minor that is not positive definite, or 0."""

def cond(A: Any, p: Any = ...) -> Tensor:
    """Condition numbers of matrices in norm `p`; 2 by default, the ratio of the largest to the smallest singular value."""

def cross(x: Any, other: Any, *, axis: int = ..., dim: Any = ...) -> Tensor:
    """The cross product along `axis`, which has length 3 in both operands; the other axes broadcast."""

def det(x: Any) -> Tensor:
    """Determinants of square matrices (..., n, n). First and second derivatives exist for singular matrices too."""

def diagonal(A: Any, *, offset: int = ..., dim1: int = ..., dim2: int = ...) -> Tensor:
    """Diagonal number `offset` of the matrices in two axes, the last two by default, as the last axis."""

def eig(A: Any) -> EigResult:
    """Complex eigenvalues, in no particular order, and eigenvectors of matrices (..., n, n), real or complex."""

def eigh(A: Any, UPLO: str = ...) -> EighResult:
    """Eigenvalues, ascending, and eigenvectors of symmetric or Hermitian matrices (..., n, n). One triangle is read."""

def eigvals(A: Any) -> Tensor:
    """Complex eigenvalues, in no particular order, of matrices (..., n, n), real or complex."""

def eigvalsh(A: Any, UPLO: str = ...) -> Tensor:
    """Eigenvalues, ascending, of symmetric or Hermitian matrices (..., n, n). The lower or upper triangle is read."""

def householder_product(A: Any, tau: Any) -> Tensor:
    """The first n columns of the product of k Householder reflections `I - tau_i v_i v_i^T`."""

def inv(x: Any) -> Tensor:
    """Inverses of square matrices (..., n, n). Raises LinAlgError for singular ones."""

def inv_ex(A: Any, *, check_errors: bool = ...) -> InvExResult:
    """Inverses, and per matrix the number of the first zero pivot or 0. Raises LinAlgError only if `check_errors`."""

def ldl_factor(A: Any, *, hermitian: bool = ...) -> LDLFactorResult:
    """L and D of `A = L @ D @ L.T` for symmetric matrices, with LAPACK's pivots. Raises LinAlgError for singular matrices."""

def ldl_factor_ex(A: Any, *, hermitian: bool = ..., check_errors: bool = ...) -> LDLFactorExResult:
    """As `ldl_factor`, with the first zero pivot of each matrix, or 0. Raises LinAlgError only if `check_errors`."""

def ldl_solve(LD: Any, pivots: Any, B: Any, *, hermitian: bool = ...) -> Tensor:
    """The solution X of `A @ X = B` from the `ldl_factor` of `A`. There are no gradients."""

def lstsq(A: Any, B: Any, rcond: float | None = ..., *, driver: Any = ...) -> LstsqResult:
    """The X of least norm that minimizes the norm of `A @ X - B`, by the pseudo-inverse."""

def lu(A: Any, *, pivot: bool = ...) -> LUResult:
    """P, L and U with `A = P @ L @ U`: a permutation, ones on the diagonal of L, upper triangular U."""

def lu_factor(A: Any, *, pivot: bool = ...) -> LUFactorResult:
    """L and U of `A = P @ L @ U` in one matrix, and pivots numbered from 1. Raises LinAlgError for singular matrices."""

def lu_factor_ex(A: Any, *, pivot: bool = ..., check_errors: bool = ...) -> LUFactorExResult:
    """As `lu_factor`, with the first zero pivot of each matrix, or 0. Raises LinAlgError only if `check_errors`."""

def lu_solve(LU: Any, pivots: Any, B: Any, *, left: bool = ..., adjoint: bool = ...) -> Tensor:
    """The solution X of `A @ X = B` from the `lu_factor` of `A` (..., n, n), for `B` (..., n, k)."""

def matmul(x: Any, y: Any, *, out_dtype: Any = ...) -> Tensor:
    """Matrix product as NumPy's: 1-D inputs are vectors, further axes broadcast: (..., M, K) @ (..., K, N)."""

def matrix_exp(x: Any) -> Tensor:
    """The exponential of square matrices (..., n, n), by scaling and squaring (Higham 2005); of halves, in float32."""

def matrix_norm(
    A: Any,
    ord: Any = ...,
    axis: Any = ...,
    keepdims: bool = ...,
    *,
    dtype: Any = ...,
    dim: Any = ...,
    keepdim: Any = ...,
) -> Tensor:
    """A norm of the matrices in two axes: "fro", "nuc" (the sum of singular values), 2 or -2 (the largest or smallest one),"""

def matrix_power(x: Any, n: int) -> Tensor:
    """Powers of square matrices (..., m, m); negative ones of the inverse. Raises LinAlgError for singular matrices then."""

def matrix_rank(A: Any, tol: Any = ..., hermitian: bool = ..., *, atol: Any = ..., rtol: Any = ...) -> Tensor:
    """The number of singular values above max(atol, rtol * the largest), as int64."""

def matrix_transpose(x: Any) -> Tensor:
    """The matrices (..., m, n) transposed. Raises ShapeError for fewer than two axes. Returns a view."""

def multi_dot(tensors: Any) -> Tensor:
    """The product of two or more matrices in the order of fewest multiplications; the ends may be vectors."""

def norm(A: Any, ord: Any = ..., dim: Any = ..., keepdim: bool = ..., *, dtype: Any = ...) -> Tensor:
    """The norm of vectors or matrices: `vector_norm` for one axis or without `ord`, `matrix_norm` for two axes."""

def outer(x: Any, vec2: Any) -> Tensor:
    """The products of each element of one vector with each of another: (n,) and (m,) to (n, m)."""

def pinv(A: Any, rcond: Any = ..., hermitian: bool = ..., *, atol: Any = ..., rtol: Any = ...) -> Tensor:
    """Pseudo-inverses of matrices (..., m, n), where singular values up to max(atol, rtol * the largest) count as 0."""

def qr(A: Any, mode: str = ...) -> QRResult:
    """Q with orthonormal columns and the upper triangular R with `A = Q @ R` of matrices (..., m, n)."""

def slogdet(x: Any) -> SlogdetResult:
    """Sign or phase, and logarithm of the absolute value, of determinants (..., n, n); 0 and -infinity of singular ones."""

def solve(A: Any, B: Any, *, left: bool = ...) -> Tensor:
    """The solution X of `A @ X = B`, or of `X @ A = B` if not `left`."""

def solve_ex(A: Any, B: Any, *, left: bool = ..., check_errors: bool = ...) -> SolveExResult:
    """Solutions as `solve` returns them, and per matrix the first zero pivot or 0. Raises LinAlgError only if `check_errors`."""

def solve_triangular(A: Any, B: Any, *, upper: bool, left: bool = ..., unitriangular: bool = ...) -> Tensor:
    """The solution X of `A @ X = B`, or of `X @ A = B` if not `left`, for triangular matrices (..., n, n)."""

def svd(A: Any, full_matrices: bool = ..., *, driver: Any = ...) -> SVDResult:
    """U, S and Vh of `A = U @ diag(S) @ Vh` for matrices (..., m, n), with S descending."""

def svdvals(A: Any, *, driver: Any = ...) -> Tensor:
    """Singular values, descending, of matrices (..., m, n). `driver` is PyTorch's and has no effect."""

def tensordot(x: Any, y: Any, axes: Any = ..., *, dims: Any = ...) -> Tensor:
    """The sums of products over pairs of axes."""

def tensorinv(A: Any, ind: int = ...) -> Tensor:
    """The inverse of `tensordot(A, ., ind)`: the first `ind` axes of `A` have as many elements as the rest."""

def tensorsolve(A: Any, B: Any, dims: Any = ...) -> Tensor:
    """The solution X of `tensordot(A, X, X.ndim) = B`; axes `dims` of `A` are moved to its end first."""

def trace(x: Any, offset: int = ..., *, dtype: Any = ...) -> Tensor:
    """The sum of diagonal number `offset` of the matrices in the last two axes. Integers sum in 64 bits, or all in `dtype`."""

def vander(x: Any, *, N: int | None = ...) -> Tensor:
    """The Vandermonde matrices of vectors (..., n): powers 0 to N - 1 of each element, n of them by default."""

def vecdot(x: Any, y: Any, axis: int = ..., *, dim: Any = ...) -> Tensor:
    """The sum along `axis` of the products of `x`, conjugated where it is complex, and `y`; the other axes broadcast."""

def vector_norm(
    x: Any,
    ord: float = ...,
    axis: Any = ...,
    keepdims: bool = ...,
    *,
    dtype: Any = ...,
    dim: Any = ...,
    keepdim: Any = ...,
) -> Tensor:
    """The `ord`-norm over `axis`, all by default: the `ord`-th root of the sum of powers of absolute values."""
