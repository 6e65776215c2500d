"""The lower triangle of matrices as vectors, and back."""

from __future__ import annotations

import math

import numpy as np

from polyhal import functions as ops
from polyhal.hal import dtypes
from polyhal.tensor import Tensor


def lower_to_vector(x: Tensor, diagonal: int) -> Tensor:
    """Return the elements of (..., n, n) up to a diagonal, row by row: (..., k)."""
    n = x.shape[-1]
    rows, columns = np.tril_indices(n, diagonal)
    flat = ops.reshape(x, (*x.shape[:-2], n * n))
    return ops.take(flat, Tensor(rows * n + columns, dtype=dtypes.int64, device=x.device), axis=-1)


def vector_to_lower(x: Tensor, diagonal: int) -> Tensor:
    """Return matrices (..., n, n) with the elements of (..., k) up to a diagonal, and zeros above. `diagonal` is 0 or -1."""
    n = side(x.shape[-1], diagonal)
    places = np.full((n, n), x.shape[-1])
    places[np.tril_indices(n, diagonal)] = np.arange(x.shape[-1])
    filled = ops.concat([x, x[..., :1] * 0], axis=-1)
    flat = ops.take(filled, Tensor(places.reshape(-1), dtype=dtypes.int64, device=x.device), axis=-1)
    return ops.reshape(flat, (*x.shape[:-1], n, n))


def side(count: int, diagonal: int) -> int:
    """Return the number of rows of a matrix with `count` elements up to a diagonal. Raises ValueError if there is none."""
    n = (math.isqrt(1 + 8 * count) - 1) // 2 - diagonal
    if (n + diagonal) * (n + diagonal + 1) // 2 != count:
        raise ValueError(f"[transforms] {count} elements do not form a triangle")
    return n
