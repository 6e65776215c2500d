"""The named results of linear algebra, with the fields' names of PyTorch and the Array API."""

from __future__ import annotations

from typing import Any, NamedTuple


class CholeskyExResult(NamedTuple):
    """A Cholesky factor, and per matrix the first leading minor that is not positive definite, or 0."""

    L: Any
    info: Any


class EigResult(NamedTuple):
    """Complex eigenvalues, and eigenvectors as columns."""

    eigenvalues: Any
    eigenvectors: Any


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and eigenvectors as columns."""

    eigenvalues: Any
    eigenvectors: Any


class GeqrfResult(NamedTuple):
    """R above and Householder vectors below the diagonal, and their scales."""

    a: Any
    tau: Any


class InvExResult(NamedTuple):
    """An inverse, and per matrix the first zero pivot, or 0."""

    inverse: Any
    info: Any


class LDLFactorResult(NamedTuple):
    """L and D in one lower triangle, and LAPACK's pivots."""

    LD: Any
    pivots: Any


class LDLFactorExResult(NamedTuple):
    """L and D in one lower triangle, LAPACK's pivots, and per matrix the first zero pivot, or 0."""

    LD: Any
    pivots: Any
    info: Any


class LowRankResult(NamedTuple):
    """Left singular vectors as columns, singular values in descending order, right singular vectors as columns."""

    U: Any
    S: Any
    V: Any


class LstsqResult(NamedTuple):
    """A solution of least squares, and properties of its matrix."""

    solution: Any
    residuals: Any
    rank: Any
    singular_values: Any


class LUFactorResult(NamedTuple):
    """L and U in one matrix, and pivots numbered from 1."""

    LU: Any
    pivots: Any


class LUFactorExResult(NamedTuple):
    """L and U in one matrix, pivots numbered from 1, and per matrix the first zero pivot, or 0."""

    LU: Any
    pivots: Any
    info: Any


class LUResult(NamedTuple):
    """A permutation and the triangular factors."""

    P: Any
    L: Any
    U: Any


class QRResult(NamedTuple):
    """Orthonormal columns and an upper triangular matrix."""

    Q: Any
    R: Any


class SlogdetResult(NamedTuple):
    """The sign of a determinant, and the logarithm of its absolute value."""

    sign: Any
    logabsdet: Any


class SolveExResult(NamedTuple):
    """A solution, and per matrix the first zero pivot, or 0."""

    result: Any
    info: Any


class SVDResult(NamedTuple):
    """Left singular vectors as columns, singular values in descending order, right singular vectors as rows."""

    U: Any
    S: Any
    Vh: Any
