"""Regions of a tensor replaced: slices, one slice, and diagonals; vectors made diagonals of matrices."""

from __future__ import annotations

from typing import Any

from polyhal.hal.errors import ShapeError, message
from polyhal.hal.layout import View, contiguous, normalize_axis, slice_view
from polyhal.hal.ops.composite import Returns, composite
from polyhal.hal.ops.layout.axes import unsqueeze
from polyhal.hal.ops.layout.diagonal import diagonal_view, embed_diagonal, view_of_diagonal
from polyhal.hal.ops.layout.regions import copy
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.layout.window import overwrite
from polyhal.hal.ops.tensor_like import TensorLike


def _checked_source(name: str, x: Any, src: Any, shape: tuple[int, ...]) -> Any:
    if src.shape != shape:
        raise ShapeError(message(name, f"the source has shape {src.shape}", expected=str(shape)))
    return src if src.dtype is x.dtype else src.cast(dtype=x.dtype)


def _with_region(x: TensorLike, src: TensorLike, region: View) -> Any:
    """Return `x` with a region of its row-major memory replaced by `src`. The tape saves neither tensor.

    The region is a view with one more axis, so that the gradient of `x` depends on the gradient of the result, as in PyTorch,
    even if `src` replaces all elements.
    """
    shape, strides = (1, *region.shape), (x.size, *region.strides)
    return overwrite(x, reshape(src, shape), shape, strides, region.offset)[0]


@composite(aten=".default")
def slice_scatter(
    x: TensorLike, src: TensorLike, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    """`x` with the elements `start:end:step` along `axis` replaced by `src`. Compare `torch.slice_scatter`.

    Raises ShapeError.
    """
    axis = normalize_axis(axis, x.ndim)
    first, stop, step = slice(start, end, step).indices(x.shape[axis])
    count = len(range(first, stop, step))
    src = _checked_source("slice_scatter", x, src, tuple(count if k == axis else n for k, n in enumerate(x.shape)))
    if not src.size:
        return copy(x)
    starts, steps = (tuple(v if k == axis else other for k in range(x.ndim)) for v, other in ((first, 0), (step, 1)))
    return _with_region(x, src, slice_view(contiguous(x.dtype, x.shape), starts, src.shape, steps))


@composite(aten=".default")
def select_scatter(x: TensorLike, src: TensorLike | int, axis: int, index: int) -> Any:
    """`x` with slice number `index` along `axis` replaced by `src`. Compare `torch.select_scatter`.

    Raises ShapeError, and IndexError for a number out of range.
    """
    axis = normalize_axis(axis, x.ndim)
    length = x.shape[axis]
    if not -length <= index < length:
        problem = f"index {index} is out of range for axis {axis} of length {length}"
        raise IndexError(message("select_scatter", problem))
    src = _checked_source("select_scatter", x, src, (*x.shape[:axis], *x.shape[axis + 1 :]))
    return slice_scatter(x, unsqueeze(src, axis), axis, index % length, index % length + 1)


@composite(aten=".default")
def diagonal_scatter(x: TensorLike, src: TensorLike, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """`x` with diagonal number `offset` of the matrices in two axes replaced by `src`, shaped as `diagonal` returns it.

    Compare `torch.diagonal_scatter`. Raises ShapeError.
    """
    src = _checked_source("diagonal_scatter", x, src, diagonal_view(x, offset, dim1, dim2).shape)
    if not src.size:
        return copy(x)
    params = {"offset": offset, "dim1": normalize_axis(dim1, x.ndim), "dim2": normalize_axis(dim2, x.ndim)}
    return _with_region(x, src, view_of_diagonal(contiguous(x.dtype, x.shape), params))


@composite()
def diag_embed(x: TensorLike, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """Square matrices in the axes `dim1` and `dim2`, with the last axis of `x` as diagonal number `offset` and zeros elsewhere.

    Compare `torch.diag_embed`.
    """
    first, second = (normalize_axis(a, x.ndim + 1) for a in (dim1, dim2))
    lengths = iter(x.shape[:-1])
    size = x.shape[-1] + abs(offset)
    shape = tuple(size if k in (first, second) else next(lengths, 1) for k in range(x.ndim + 1))
    return embed_diagonal(x, shape, offset, first, second)


@composite(returns=Returns.COPY)
def diag(x: TensorLike, diagonal: int = 0) -> Any:
    """A square matrix with the vector `x` as its diagonal number `diagonal`, or that diagonal of the matrix `x`.

    Compare `torch.diag`. Raises ShapeError for other tensors.

    >>> polyhal.diag(polyhal.tensor([1, 2])).tolist()
    [[1, 0], [0, 2]]
    """
    if x.ndim not in (1, 2):
        raise ShapeError(message("diag", f"x has shape {x.shape}", expected="a vector or a matrix"))
    return diag_embed(x, diagonal) if x.ndim == 1 else diagonal_view(x, diagonal, 0, 1)


@composite()
def diagflat(x: TensorLike, offset: int = 0) -> Any:
    """A square matrix whose diagonal number `offset` holds the elements of `x` in row-major order. Compare `torch.diagflat`."""
    return diag_embed(reshape(x, (x.size,)), offset)
