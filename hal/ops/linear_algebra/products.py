"""Products of vectors and matrices under PyTorch's names, all made of `matmul` or of a multiplication and a sum."""

from __future__ import annotations

import math
from typing import Any

from polyhal.hal.errors import ShapeError, message
from polyhal.hal.layout import normalize_axis
from polyhal.hal.ops.complex_numbers.functions import conj
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.layout.regions import concat, pad
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import permute, reshape
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.pointwise.arithmetic import multiply
from polyhal.hal.ops.reductions.sums import sum_
from polyhal.hal.ops.returns import own
from polyhal.hal.ops.tensor_like import TensorLike


def require_axes(name: str, *expected: tuple[Any, int]) -> None:
    """Raise ShapeError unless each tensor has the number of axes in its tuple."""
    if any(x.ndim != n for x, n in expected):
        shapes = " and ".join(str(tuple(x.shape)) for x, _ in expected)
        counts = " and ".join(str(n) for _, n in expected)
        raise ShapeError(message(name, f"shapes {shapes}", expected=f"{counts} axes"))


def _product_of_vectors(name: str, x: TensorLike, y: TensorLike) -> Any:
    require_axes(name, (x, 1), (y, 1))
    return own(reshape(op_matmul(reshape(x, (1, x.shape[0])), reshape(y, (y.shape[0], 1))), ()))


@composite()
def dot(x: TensorLike, y: TensorLike) -> Any:
    """The sum of the products of two vectors' elements.

    >>> polyhal.dot(polyhal.tensor([1, 2]), polyhal.tensor([3, 4])).item()
    11
    """
    return _product_of_vectors("dot", x, y)


@composite(aten=".default")
def vdot(x: TensorLike, y: TensorLike) -> Any:
    """The sum of the products of two vectors' elements; the first vector is conjugated."""
    return _product_of_vectors("vdot", conj(x), y)


@composite()
def mv(x: TensorLike, vec: TensorLike) -> Any:
    """The product of a matrix (n, m) and a vector (m,)."""
    require_axes("mv", (x, 2), (vec, 1))
    return own(reshape(op_matmul(x, reshape(vec, (vec.shape[0], 1))), (x.shape[0],)))


@composite()
def mm(x: TensorLike, mat2: TensorLike) -> Any:
    """The product of two matrices, without broadcasting.

    >>> polyhal.mm(polyhal.ones(2, 3), polyhal.ones(3, 4)).shape
    (2, 4)
    """
    require_axes("mm", (x, 2), (mat2, 2))
    return op_matmul(x, mat2)


@composite()
def bmm(x: TensorLike, mat2: TensorLike) -> Any:
    """The products of two batches of matrices, (b, n, m) and (b, m, p), without broadcasting.

    Raises ShapeError for different numbers of matrices.

    >>> polyhal.bmm(polyhal.ones(2, 3, 4), polyhal.ones(2, 4, 5)).shape
    (2, 3, 5)
    """
    require_axes("bmm", (x, 3), (mat2, 3))
    if x.shape[0] != mat2.shape[0]:
        raise ShapeError(message("bmm", f"{x.shape[0]} and {mat2.shape[0]} matrices", expected="equal numbers"))
    return op_matmul(x, mat2)


@composite("linalg.", "ger")
def outer(x: TensorLike, vec2: TensorLike) -> Any:
    """The products of each element of one vector with each of another: (n,) and (m,) to (n, m).

    >>> polyhal.outer(polyhal.tensor([1, 2]), polyhal.tensor([3, 4])).tolist()
    [[3, 4], [6, 8]]
    """
    require_axes("outer", (x, 1), (vec2, 1))
    return multiply(reshape(x, (x.shape[0], 1)), vec2)


@composite()
def inner(x: TensorLike, other: TensorLike) -> Any:
    """The sums of products over the last axes: (..., k) and (---, k) to (..., ---). Scalars multiply."""
    if x.ndim == 0 or other.ndim == 0:
        return multiply(x, other)
    return tensordot(x, other, ((-1,), (-1,)))


@composite("linalg.")
def tensordot(x: TensorLike, y: TensorLike, axes: Any = 2) -> Any:
    """The sums of products over pairs of axes.

    `axes` is a number n, for the last n axes of `x` and the first n of `y`, or two sequences of axes. The free axes of `x`
    are followed by those of `y`. An axis of length 1 is broadcast. Raises ShapeError if paired axes differ in length otherwise.

    >>> polyhal.tensordot(polyhal.ones(2, 3), polyhal.ones(3, 4), 1).shape
    (2, 4)
    """
    if hasattr(axes, "tolist"):
        axes = axes.tolist()
    if isinstance(axes, int):
        if not 0 <= axes <= min(x.ndim, y.ndim):
            raise ShapeError(message("tensordot", f"axes {axes}", expected=f"0 to {min(x.ndim, y.ndim)}"))
        axes = (range(x.ndim - axes, x.ndim), range(axes))
    ours, theirs = ([a] if isinstance(a, int) else list(a) for a in axes)
    ours, theirs = [normalize_axis(a, x.ndim) for a in ours], [normalize_axis(a, y.ndim) for a in theirs]
    problem = f"axes {ours} of {tuple(x.shape)} and {theirs} of {tuple(y.shape)}"
    if len(ours) != len(theirs) or len(set(ours)) != len(ours) or len(set(theirs)) != len(theirs):
        raise ShapeError(message("tensordot", problem, expected="pairs of different axes"))
    x = _summed_beside_ones(x, ours, [y.shape[a] for a in theirs])
    y = _summed_beside_ones(y, theirs, [x.shape[a] for a in ours])
    if [x.shape[a] for a in ours] != [y.shape[a] for a in theirs]:
        raise ShapeError(message("tensordot", problem, expected="axes of equal length, or of length 1"))
    rows = [a for a in range(x.ndim) if a not in ours]
    columns = [a for a in range(y.ndim) if a not in theirs]
    shape = (*(x.shape[a] for a in rows), *(y.shape[a] for a in columns))
    terms = math.prod(x.shape[a] for a in ours)
    left = reshape(permute(x, (*rows, *ours)), (math.prod(x.shape[a] for a in rows), terms))
    right = reshape(permute(y, (*theirs, *columns)), (terms, math.prod(y.shape[a] for a in columns)))
    return reshape(op_matmul(left, right), shape)


def _summed_beside_ones(x: TensorLike, axes: list[int], others: list[int]) -> Any:
    """`x` summed over those axes whose partners have length 1."""
    summed = tuple(a for a, n in zip(axes, others, strict=True) if n == 1 and x.shape[a] != 1)
    return sum_(x, summed, True).cast(dtype=x.dtype) if summed else x


@composite("linalg.")
def vecdot(x: TensorLike, y: TensorLike, axis: int = -1) -> Any:
    """The sum along `axis` of the products of `x`, conjugated where it is complex, and `y`; the other axes broadcast.

    It has the dtype of the products, as a matrix product has: sums of small integers wrap.
    """
    products = multiply(conj(x) if x.dtype.is_complex else x, y)
    return sum_(products, axis).cast(dtype=products.dtype)


@composite()
def kron(x: TensorLike, other: TensorLike) -> Any:
    """The Kronecker product: the tensor of blocks `x[i] * other`. Missing leading axes have length 1.

    >>> polyhal.kron(polyhal.tensor([1, 2]), polyhal.tensor([1, 1])).tolist()
    [1, 1, 2, 2]
    """
    ndim = max(x.ndim, other.ndim)
    a, b = ((1,) * (ndim - t.ndim) + tuple(t.shape) for t in (x, other))
    blocks = multiply(
        reshape(x, tuple(n for length in a for n in (length, 1))),
        reshape(other, tuple(n for length in b for n in (1, length))),
    )
    return own(reshape(blocks, tuple(n * m for n, m in zip(a, b, strict=True))))


def vector_product(name: str, x: TensorLike, y: TensorLike, axis: int) -> Any:
    """The cross product along `axis`, which has length 3 in both operands; the other axes broadcast."""
    if x.ndim != y.ndim or not x.ndim or x.shape[axis] != 3 or y.shape[axis] != 3:
        problem = f"shapes {tuple(x.shape)} and {tuple(y.shape)}"
        raise ShapeError(message(name, problem, expected=f"as many axes each, and length 3 along axis {axis}"))
    x1, y1 = _rotated(x, axis, 1), _rotated(y, axis, 1)
    x2, y2 = _rotated(x, axis, 2), _rotated(y, axis, 2)
    return x1 * y2 - x2 * y1


def _rotated(x: TensorLike, axis: int, by: int) -> Any:
    axis = normalize_axis(axis, x.ndim)
    parts = []
    for start, length in ((by, 3 - by), (0, by)):
        starts = tuple(start if i == axis else 0 for i in range(x.ndim))
        lengths = tuple(length if i == axis else n for i, n in enumerate(x.shape))
        parts.append(slice_(x, starts, lengths, (1,) * x.ndim))
    return concat(parts, axis)


@composite()
def cross(x: TensorLike, other: TensorLike, dim: int | None = None) -> Any:
    """The cross product along `dim`, by default the first axis of length 3, as in PyTorch."""
    if dim is None:
        dim = next((i for i, n in enumerate(x.shape) if n == 3), -1)
    return vector_product("cross", x, other, dim)


@composite("linalg.cross", public=False, aten="linalg_cross")
def last_axis_cross(x: TensorLike, other: TensorLike, *, axis: int = -1) -> Any:
    """The cross product along `axis`, which has length 3 in both operands; the other axes broadcast."""
    if axis < 0:  # the axes before it broadcast
        ndim = max(x.ndim, other.ndim)
        x, other = (reshape(v, ((1,) * (ndim - v.ndim) + tuple(v.shape))) for v in (x, other))
    return vector_product("cross", x, other, axis)


@composite(method=False)
def block_diag(*tensors: Any) -> Any:
    """The block-diagonal matrix of matrices; vectors count as rows, scalars as matrices of one element."""
    blocks = [x if x.ndim == 2 else reshape(x, (1, x.shape[0] if x.ndim else 1)) for x in tensors]
    total, before, rows = sum(x.shape[1] for x in blocks), 0, []
    for x in blocks:
        rows.append(pad(x, ((0, 0), (before, total - before - x.shape[1]))))
        before += x.shape[1]
    return concat(rows, 0)
