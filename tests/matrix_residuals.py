"""Backward errors of factors and solutions, in units of Higham's bounds (Accuracy and Stability of Numerical Algorithms, 2002).

Each is a residual over n eps times the magnitudes whose products it consists of. The bounds hold with a constant of a few
units, and usual errors are far below 1 (theorems 9.3, 10.3, 19.4 and 8.5): tests allow `LIMIT`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

LIMIT = 4.0


def _units(error: np.ndarray, magnitude: np.ndarray, n: int, dtype: Any) -> float:
    """Return the largest error in units of n eps times the largest magnitude of each matrix."""
    if not error.size:
        return 0.0
    scale = np.abs(magnitude).max((-2, -1), keepdims=True)
    tiny = float(np.finfo(dtype).tiny)
    return float((np.abs(error) / (np.maximum(scale, tiny) * n * float(np.finfo(dtype).eps))).max())


def _wide(x: Any) -> np.ndarray:
    return np.asarray(x).astype(np.float64)


def _transposed(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x, -2, -1)


def of_lu(a: np.ndarray, packed: np.ndarray, pivots: np.ndarray) -> float:
    """Return the error of P L U, relative to |L| |U|. Raises AssertionError if a multiplier is larger than 1."""
    m, n = a.shape[-2:]
    k = min(m, n)
    lower = np.tril(_wide(packed)[..., :k], -1) + np.eye(m, k)
    upper = np.triu(_wide(packed)[..., :k, :])
    assert (np.abs(lower) <= 1).all()
    moved = _wide(a).reshape(-1, m, n).copy()
    for matrix, row in zip(moved, np.asarray(pivots).reshape(-1, k), strict=True):
        for j, p in enumerate(row - 1):
            matrix[[j, p]] = matrix[[p, j]]
    return _units(moved.reshape(a.shape) - lower @ upper, np.abs(lower) @ np.abs(upper), k, a.dtype)


def of_cholesky(a: np.ndarray, factor: np.ndarray, upper: bool) -> float:
    """Return the error of L L^T, for the triangle of `a` that is read. Raises AssertionError if the other one is not 0."""
    a, lower = (_transposed(a), _transposed(factor)) if upper else (a, factor)
    assert not np.triu(lower, 1).any()
    lower = _wide(lower)
    error = np.tril(_wide(a) - lower @ _transposed(lower))
    return _units(error, np.abs(lower) @ np.abs(_transposed(lower)), a.shape[-1], factor.dtype)


def of_solution(a: np.ndarray, x: np.ndarray, b: np.ndarray) -> float:
    """Return the residual b - A x, relative to |A| |x| + |b|. Partial pivoting's growth is not part of it."""
    error = _wide(b) - _wide(a) @ _wide(x)
    return _units(error, np.abs(_wide(a)) @ np.abs(_wide(x)) + np.abs(_wide(b)), a.shape[-1], x.dtype)


def of_qr(a: np.ndarray, q: np.ndarray, r: np.ndarray) -> float:
    """Return the larger error of Q R and of the orthonormality of Q. Raises AssertionError if R is not triangular."""
    assert not np.tril(r, -1).any()
    product = _units(_wide(a) - _wide(q) @ _wide(r), _wide(a), max(a.shape[-2:]), a.dtype)
    return max(product, of_orthonormal(q))


def of_orthonormal(q: np.ndarray) -> float:
    """Return the error of Q^T Q."""
    one = np.eye(q.shape[-1])
    return _units(
        _transposed(_wide(q)) @ _wide(q) - one,
        np.broadcast_to(one, (*q.shape[:-2], *one.shape)),
        max(q.shape[-2:]),
        q.dtype,
    )


SPECTRUM_LIMIT = 4.0
"""Rotations of Jacobi's method add up to n eps times a small constant, relative to the norm (Golub, Van Loan: 8.5)."""


def of_spectrum(a: np.ndarray, values: np.ndarray, vectors: np.ndarray) -> float:
    """Return the larger error of A V - V diag(w), relative to the largest eigenvalue, and of the orthonormality of V."""
    error = _wide(a) @ _wide(vectors) - _wide(vectors) * _wide(values)[..., None, :]
    norm = np.broadcast_to(np.abs(_wide(values)).max(-1)[..., None, None], a.shape)
    return max(_units(error, norm, a.shape[-1], a.dtype), of_orthonormal(vectors))


def of_singular_factors(a: np.ndarray, u: np.ndarray, s: np.ndarray, vh: np.ndarray) -> float:
    """Return the larger error of U diag(s) Vh, relative to the largest singular value, and of the orthonormality of both."""
    k = s.shape[-1]
    error = _wide(a) - (_wide(u)[..., :k] * _wide(s)[..., None, :]) @ _wide(vh)[..., :k, :]
    norm = np.broadcast_to(_wide(s)[..., :1, None], a.shape)
    product = _units(error, norm, max(a.shape[-2:]), a.dtype)
    return max(product, of_orthonormal(u), of_orthonormal(_transposed(vh)))
