"""Norms of vectors and matrices with PyTorch's arguments, and condition numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from polyhal.hal.dtypes import DType
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.layout import normalize_axes, normalize_axis
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.layout.axes import unsqueeze
from polyhal.hal.ops.layout.views import permute
from polyhal.hal.ops.linear_algebra.decompositions.solve import inverse_matrix
from polyhal.hal.ops.linear_algebra.decompositions.spectrum import singular_values
from polyhal.hal.ops.pointwise.arithmetic import abs_
from polyhal.hal.ops.pointwise.rounding import isnan
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.reductions.extrema import max_, min_
from polyhal.hal.ops.reductions.norms import vector_norm as p_norm
from polyhal.hal.ops.reductions.sums import sum_
from polyhal.hal.ops.tensor_like import TensorLike

_ORDERS = ("fro", "nuc", math.inf, -math.inf, 1, -1, 2, -2)


@composite("linalg.", public=False)
def vector_norm(
    x: TensorLike,
    ord: float = 2,  # noqa: A002
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    *,
    dtype: DType | None = None,
) -> Any:
    """The `ord`-norm over `axis`, all by default: the `ord`-th root of the sum of powers of absolute values.

    0 counts the elements that are not 0; infinity and -infinity give the largest and smallest absolute value.
    """
    axes = None if axis == () or axis == [] else tuple(axis) if isinstance(axis, list) else axis
    return p_norm(x, axes, keepdims, float(ord), dtype)


@composite("linalg.", public=False)
def matrix_norm(
    A: Any,
    ord: Any = "fro",  # noqa: A002
    axis: int | Sequence[int] = (-2, -1),
    keepdims: bool = False,
    *,
    dtype: Any = None,
) -> Any:
    """A norm of the matrices in two axes: "fro", "nuc" (the sum of singular values), 2 or -2 (the largest or smallest one),
    1 or -1 (the largest or smallest sum of a column's absolute values), infinity or -infinity (of a row's). Raises
    ShapeError for another `ord`.
    """
    if ord not in _ORDERS:
        raise ShapeError(message("matrix_norm", f"ord {ord!r}", expected=f"one of {', '.join(map(str, _ORDERS))}"))
    rows, columns = _matrix_axes("matrix_norm", A, axis)
    if ord == "fro":
        return vector_norm(A, 2, (rows, columns), keepdims, dtype=dtype)
    if dtype is not None:
        A = A.cast(dtype=dtype)
    if ord in ("nuc", 2, -2):
        rest = tuple(i for i in range(A.ndim) if i not in (rows, columns))
        values = singular_values(permute(A, (*rest, rows, columns)))
        out = sum_(values, -1) if ord == "nuc" else (max_ if ord == 2 else min_)(values, -1)
    else:
        summed, other = (rows, columns) if abs(ord) == 1 else (columns, rows)
        sums = sum_(abs_(A), summed)
        out = (max_ if ord > 0 else min_)(sums, other - (other > summed))
    return _with_axes(out, rows, columns) if keepdims else out


def _matrix_axes(name: str, A: Any, dim: Any) -> tuple[int, int]:
    if A.ndim < 2 or len(dim) != 2 or normalize_axis(dim[0], A.ndim) == normalize_axis(dim[1], A.ndim):
        raise ShapeError(message(name, f"axes {dim} of shape {tuple(A.shape)}", expected="two different axes"))
    return normalize_axis(dim[0], A.ndim), normalize_axis(dim[1], A.ndim)


def _with_axes(x: TensorLike, *axes: int) -> Any:
    for axis in sorted(axes):
        x = unsqueeze(x, axis)
    return x


@composite("linalg.norm", public=False)
def linalg_norm(
    A: TensorLike,
    ord: Any = None,  # noqa: A002
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Any:
    """The norm of vectors or matrices: `vector_norm` for one axis or without `ord`, `matrix_norm` for two axes.

    Without `dim`, `A` is a vector or a matrix, or, without `ord`, has any axes. Raises ShapeError otherwise.
    """
    axes = (dim,) if isinstance(dim, int) else None if dim is None else tuple(dim)
    if ord is None:
        return vector_norm(A, 2, axes, keepdim, dtype=dtype)
    if axes is None:
        if A.ndim not in (1, 2):
            raise ShapeError(message("norm", f"shape {tuple(A.shape)} and ord {ord!r}", expected="one or two axes"))
        axes = tuple(range(A.ndim))
    normalize_axes(axes, A.ndim)
    if len(axes) == 1 and not isinstance(ord, str):
        return vector_norm(A, ord, axes, keepdim, dtype=dtype)
    return matrix_norm(A, ord, axes, keepdim, dtype=dtype)


@composite()
def norm(
    x: TensorLike,
    p: Any = "fro",
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    dtype: DType | None = None,
) -> Any:
    """p-norm over `dim`, all axes by default; "fro" is the 2-norm, "nuc" the nuclear norm of matrices in two axes.

    Raises ShapeError for other texts.
    """
    if p == "nuc":
        return matrix_norm(x, "nuc", (0, 1) if dim is None and x.ndim == 2 else dim or (), keepdim, dtype=dtype)
    if isinstance(p, str) and p != "fro":
        raise ShapeError(message("norm", f"p {p!r}", expected="a number, 'fro' or 'nuc'"))
    return vector_norm(x, 2 if p in (None, "fro") else p, dim, keepdim, dtype=dtype)


@composite("linalg.", public=False)
def cond(A: TensorLike, p: float | str | None = None) -> Any:
    """Condition numbers of matrices in norm `p`; 2 by default, the ratio of the largest to the smallest singular value.

    Other norms than 2 and -2 are of `A` times that of its inverse: infinity for singular matrices.
    """
    if p in (None, 2, -2):
        values = singular_values(A)
        largest, smallest = values[..., 0], values[..., -1]
        return smallest / largest if p == -2 else largest / smallest
    if not A.shape[-1]:
        return sum_(sum_(A, -1), -1)
    out = matrix_norm(A, p) * matrix_norm(inverse_matrix(A, False)[0], p)
    return where(isnan(out), where(isnan(matrix_norm(A, p)), out, math.inf), out)
