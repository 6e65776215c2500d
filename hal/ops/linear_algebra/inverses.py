"""Inverses, pseudo-inverses, and solutions of systems of equations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from polyhal.hal.dtypes import promote
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.layout.axes import unsqueeze
from polyhal.hal.ops.layout.views import permute, reshape
from polyhal.hal.ops.linear_algebra.decompositions.on_host import t
from polyhal.hal.ops.linear_algebra.decompositions.pseudo_inverse import pseudo_inverse
from polyhal.hal.ops.linear_algebra.decompositions.solve import inverse_matrix, solve_system
from polyhal.hal.ops.linear_algebra.decompositions.triangular import solve_triangular_left
from polyhal.hal.ops.linear_algebra.results import InvExResult, SolveExResult
from polyhal.hal.ops.pointwise.cast import in_dtype
from polyhal.hal.ops.tensor_like import TensorLike


@composite("linalg.inv")
def inverse(x: TensorLike) -> Any:
    """Inverses of square matrices (..., n, n). Raises LinAlgError for singular ones.

    >>> polyhal.linalg.inv(polyhal.tensor([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return inverse_matrix(x)[0]


@composite("linalg.", public=False, aten="linalg_inv_ex")
def inv_ex(A: TensorLike, *, check_errors: bool = False) -> InvExResult:
    """Inverses, and per matrix the number of the first zero pivot or 0. Raises LinAlgError only if `check_errors`."""
    return InvExResult(*inverse_matrix(A, check_errors))


@composite()
def pinverse(x: TensorLike, rcond: float = 1e-15) -> Any:
    """Pseudo-inverses, where singular values up to `rcond` times the largest count as 0.

    Takes matrices (..., m, n) and returns (..., n, m).
    """
    return pinv(x, rcond)


@composite("linalg.", public=False)
def pinv(A: TensorLike, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Any:
    """Pseudo-inverses of matrices (..., m, n), where singular values up to max(atol, rtol * the largest) count as 0.

    `rtol` is max(m, n) units of the dtype unless `atol` is positive; `rcond` is another name of it. The tolerances are
    numbers, or tensors with one for each matrix. `hermitian` says that matrices are symmetric: their lower triangle is read.
    """
    return pseudo_inverse(A, atol, rcond if rtol is None else rtol, hermitian)


def is_vector(A: TensorLike, B: TensorLike) -> bool:
    """Return whether the right side of a system consists of vectors: it has one axis, or the shape of `A` without its last."""
    return bool(B.ndim == 1 or (A.ndim - 1 == B.ndim and tuple(B.shape) == tuple(A.shape[:-1])))


@composite("linalg.", public=False)
def solve_ex(A: TensorLike, B: TensorLike, *, left: bool = True, check_errors: bool = False) -> SolveExResult:
    """Solutions as `solve` returns them, and per matrix the first zero pivot or 0. Raises LinAlgError only if `check_errors`.

    Raises ShapeError for vectors with `left=False`.
    """
    vector = is_vector(A, B)
    if vector and not left:
        raise ShapeError(message("solve", f"a right side of vectors {tuple(B.shape)}", expected="left=True"))
    right = unsqueeze(B, -1) if vector else B
    out, info = solve_system(A, right, check_errors) if left else solve_system(t(A), t(right), check_errors)
    out = out if left else t(out)
    return SolveExResult(reshape(out, out.shape[:-1]) if vector else out, info)


@composite("linalg.", public=False)
def solve(A: TensorLike, B: TensorLike, *, left: bool = True) -> Any:
    """The solution X of `A @ X = B`, or of `X @ A = B` if not `left`.

    A is (..., n, n); B is (..., n, k) or consists of vectors (..., n). Batches and floating-point dtypes are promoted to a
    common one. Raises LinAlgError for singular matrices.

    >>> a = polyhal.tensor([[2.0, 0.0], [0.0, 4.0]])
    >>> polyhal.linalg.solve(a, polyhal.tensor([2.0, 2.0])).tolist()
    [1.0, 0.5]
    """
    if A.dtype is not B.dtype and {A.dtype.kind, B.dtype.kind} <= {"float", "complex"}:
        A, B = (in_dtype(x, promote(A.dtype, B.dtype)) for x in (A, B))
    return solve_ex(A, B, left=left, check_errors=True).result


@composite("linalg.", public=False, aten="linalg_solve_triangular")
def solve_triangular(
    A: TensorLike, B: TensorLike, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    """The solution X of `A @ X = B`, or of `X @ A = B` if not `left`, for triangular matrices (..., n, n).

    The other triangle is not read, nor is the diagonal if `unitriangular`. A zero on the diagonal gives infinities and NaN.
    """
    if left:
        return solve_triangular_left(A, B, upper, unitriangular)
    return t(solve_triangular_left(t(A), t(B), not upper, unitriangular))


@composite("linalg.", public=False)
def tensorinv(A: TensorLike, ind: int = 2) -> Any:
    """The inverse of `tensordot(A, ., ind)`: the first `ind` axes of `A` have as many elements as the rest.

    Raises ShapeError if they have not.
    """
    rows, columns = tuple(A.shape[:ind]), tuple(A.shape[ind:])
    if ind <= 0 or math.prod(rows) != math.prod(columns):
        problem = f"the first {ind} axes of {tuple(A.shape)}"
        raise ShapeError(message("tensorinv", problem, expected="as many elements as the others have"))
    return reshape(inverse(reshape(A, (math.prod(rows), math.prod(columns)))), (*columns, *rows))


@composite("linalg.", public=False)
def tensorsolve(A: TensorLike, B: TensorLike, dims: Sequence[int] | None = None) -> Any:
    """The solution X of `tensordot(A, X, X.ndim) = B`; axes `dims` of `A` are moved to its end first.

    Raises ShapeError if the sizes do not fit.
    """
    if dims is not None:
        moved = [d % A.ndim for d in dims]
        A = permute(A, (*(i for i in range(A.ndim) if i not in moved), *moved))
    shape = tuple(A.shape[B.ndim :])
    size = math.prod(B.shape)
    if math.prod(shape) != size:
        problem = f"shapes {tuple(A.shape)} and {tuple(B.shape)}"
        raise ShapeError(message("tensorsolve", problem, expected=f"{size} elements along the axes after B's"))
    return reshape(solve(reshape(A, (size, size)), reshape(B, (size,))), shape)
