"""Eigenvalues of symmetric matrices, singular values, and functions of them: ranks and least squares."""

from __future__ import annotations

from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.core.dispatch import is_complex
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops.complex_numbers.rules import imag, join, real
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.layout.axes import unsqueeze
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.linear_algebra.decompositions.eigen import eigen
from polyhal.hal.ops.linear_algebra.decompositions.spectrum import (
    singular_factors,
    singular_values,
    symmetric_eigenvalues,
    symmetric_spectrum,
)
from polyhal.hal.ops.linear_algebra.inverses import is_vector, pinv
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.linear_algebra.results import EighResult, EigResult, LstsqResult, SVDResult
from polyhal.hal.ops.pointwise.arithmetic import abs_, square
from polyhal.hal.ops.pointwise.logic import greater
from polyhal.hal.ops.pointwise.selection import maximum, where
from polyhal.hal.ops.reductions.extrema import max_
from polyhal.hal.ops.reductions.sums import sum_
from polyhal.hal.ops.tensor_like import TensorLike

_DRIVERS = (None, "gels", "gelsy", "gelsd", "gelss")


@composite("linalg.", public=False, aten="linalg_eig")
def eig(A: TensorLike) -> EigResult:
    """Complex eigenvalues, in no particular order, and eigenvectors of matrices (..., n, n), real or complex.

    Vectors are columns of norm 1, unique up to their phases: only functions that do not depend on these have a gradient,
    and only if the eigenvalues differ.
    """
    w_re, w_im, v_re, v_im = eigen(real(A), imag(A) if is_complex(A) else None)
    return EigResult(join(w_re, w_im), join(v_re, v_im))


@composite("linalg.", public=False, aten="_linalg_eigvals linalg_eigvals")
def eigvals(A: TensorLike) -> Any:
    """Complex eigenvalues, in no particular order, of matrices (..., n, n), real or complex."""
    return eig(A).eigenvalues


@composite("linalg.", public=False)
def eigh(A: TensorLike, UPLO: str = "L") -> EighResult:
    """Eigenvalues, ascending, and eigenvectors of symmetric or Hermitian matrices (..., n, n). One triangle is read.
    Vectors are unique up to their signs or phases; their gradients need eigenvalues that differ.

    >>> [round(v, 4) for v in polyhal.linalg.eigh(polyhal.tensor([[2.0, 1.0], [1.0, 2.0]])).eigenvalues.tolist()]
    [1.0, 3.0]
    """
    return EighResult(*symmetric_spectrum(A, UPLO))


@composite("linalg.", public=False)
def eigvalsh(A: TensorLike, UPLO: str = "L") -> Any:
    """Eigenvalues, ascending, of symmetric or Hermitian matrices (..., n, n). The lower or upper triangle is read."""
    return symmetric_eigenvalues(A, UPLO)


@composite("linalg.", public=False)
def svd(A: TensorLike, full_matrices: bool = True, *, driver: str | None = None) -> SVDResult:
    """U, S and Vh of `A = U @ diag(S) @ Vh` for matrices (..., m, n), with S descending.

    U is (..., m, m) and Vh (..., n, n); without `full_matrices` they have min(m, n) columns and rows. Vectors are unique up to
    their signs or phases; their gradients need singular values that differ. `driver` is PyTorch's and has no effect.

    >>> polyhal.linalg.svd(polyhal.ones(4, 2), full_matrices=False).S.shape
    (2,)
    """
    return SVDResult(*singular_factors(A, full_matrices))


@composite("linalg.", public=False)
def svdvals(A: TensorLike, *, driver: str | None = None) -> Any:
    """Singular values, descending, of matrices (..., m, n). `driver` is PyTorch's and has no effect."""
    return singular_values(A)


@composite("linalg.", public=False)
def matrix_rank(A: TensorLike, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Any:
    """The number of singular values above max(atol, rtol * the largest), as int64.

    `rtol` is max(m, n) units of the dtype unless `atol` is positive; `tol` is another name of `atol`, with `rtol` 0. The
    tolerances are numbers, or tensors with one for each matrix. `hermitian` says that matrices are symmetric.
    """
    values = abs_(symmetric_eigenvalues(A)) if hermitian else singular_values(A)
    if not values.shape[-1]:
        return sum_(values.cast(dtype=dtypes.int64), -1)
    if tol is not None:
        atol, rtol = tol, 0.0
    absolute, relative = _tolerances(A, atol, rtol)
    largest = max_(values, -1, True)
    return sum_(greater(values, maximum(largest * relative, absolute)), -1)


def _tolerances(A: TensorLike, atol: Any, rtol: Any) -> tuple[Any, Any]:
    """Both tolerances, tensors among them with an axis for the singular values."""
    default = dtypes.finfo(A.dtype).eps * max(A.shape[-2:], default=0)
    if atol is None:
        atol = 0.0
    if rtol is None:
        rtol = where(greater(atol, 0), 0.0, default) if hasattr(atol, "shape") else 0.0 if atol > 0 else default
    absolute, relative = (unsqueeze(x, -1) if hasattr(x, "shape") else x for x in (atol, rtol))
    return absolute, relative


@composite("linalg.", public=False, aten="linalg_lstsq")
def lstsq(A: TensorLike, B: TensorLike, rcond: float | None = None, *, driver: str | None = None) -> LstsqResult:
    """The X of least norm that minimizes the norm of `A @ X - B`, by the pseudo-inverse.

    A is (..., m, n); B is (..., m, k) or consists of vectors (..., m). Singular values up to `rcond` times the largest count as
    0 (max(m, n) units of the dtype by default). As in PyTorch, `driver` says what else is returned: the rank unless "gels",
    singular values for "gelsd" and "gelss", and, for m > n, the sums of squared residuals unless "gelsy", the default. What is
    not is empty. Raises ShapeError for other drivers.
    """
    if driver not in _DRIVERS:
        raise ShapeError(message("lstsq", f"driver {driver!r}", expected="gels, gelsy, gelsd or gelss"))
    vector = is_vector(A, B)
    right = unsqueeze(B, -1) if vector else B
    m, n = A.shape[-2:]
    out = op_matmul(pinv(A, rcond), right)
    residuals = reshape(out, (out.spec.size,))[:0]
    if m > n and driver not in (None, "gelsy"):
        residuals = sum_(square(op_matmul(A, out) - right), -2)
    nothing = reshape(A.detach(), (A.spec.size,))[:0]
    rank = nothing.cast(dtype=dtypes.int64) if driver == "gels" else matrix_rank(A, rtol=rcond)
    values = singular_values(A.detach()) if driver in ("gelsd", "gelss") else nothing
    return LstsqResult(reshape(out, out.shape[:-1]) if vector else out, residuals, rank, values)
