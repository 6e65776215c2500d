"""`take_along_axis` as the Array API 2024.12 has it, and PyTorch's functions that read and add along an axis."""

from __future__ import annotations

from typing import Any

from polyhal.hal.errors import ShapeError, message
from polyhal.hal.layout import normalize_axis
from polyhal.hal.ops.composite import Returns, composite
from polyhal.hal.ops.indexing import along_axis
from polyhal.hal.ops.indexing.brackets import basic_index
from polyhal.hal.ops.indexing.range_errors import names_range_errors
from polyhal.hal.ops.indexing.rows import slices_at, take
from polyhal.hal.ops.layout.views import broadcast_to, reshape
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.returns import own
from polyhal.hal.ops.tensor_like import TensorLike


@composite()
@names_range_errors
def take_along_axis(x: Any, index: Any, axis: int = -1) -> Any:
    """Elements of `x` along `axis` by number. All other axes of `x` and `index` are broadcast; negative numbers wrap.

    Raises IndexError for numbers out of range on CPUs and in debug mode (`polyhal.debug`).
    """
    if not hasattr(index, "shape") or not hasattr(x, "ndim") or index.ndim != x.ndim:
        return along_axis.take_along_axis(x, index, axis)
    axis = normalize_axis(axis, x.ndim)
    shape = [max(n, m) if 0 not in (n, m) else 0 for n, m in zip(x.shape, index.shape, strict=True)]
    shape[axis] = x.shape[axis]
    if x.shape != tuple(shape):
        x = _broadcast("x", x, tuple(shape))
    shape[axis] = index.shape[axis]
    if index.shape != tuple(shape):
        index = _broadcast("the index", index, tuple(shape))
    return along_axis.take_along_axis(x, index, axis)


def _broadcast(name: str, x: Any, shape: tuple[int, ...]) -> Any:
    if any(n not in (1, m) for n, m in zip(x.shape, shape, strict=True)):
        raise ShapeError(message("take_along_axis", f"{name} {x.shape} does not broadcast to {shape}"))
    return broadcast_to(x, shape)


@composite()
@names_range_errors
def take_along_dim(x: TensorLike, indices: TensorLike, axis: int | None = None) -> Any:
    """`take_along_axis`; without an axis, the elements of `x` by number in row-major order.

    Compare `torch.take_along_dim`.
    """
    if axis is None:
        return take_along_axis(reshape(x, (-1,)), reshape(indices, (-1,)), 0)
    return take_along_axis(x, indices, axis)


@composite()
@names_range_errors
def gather(x: TensorLike, axis: int, index: TensorLike) -> Any:
    """`out[i, j] = x[index[i, j], j]` for `axis` 0: elements of `x` by number, where `index` may be shorter than `x`.

    Compare `torch.gather`. Raises ShapeError where `index` is longer than `x` along another axis.

    >>> polyhal.gather(polyhal.tensor([[1, 2], [3, 4]]), 1, polyhal.tensor([[1], [0]])).tolist()
    [[2], [3]]
    """
    if not index.size:
        return own(reshape(take(reshape(x, (-1,)), reshape(index, (-1,))), index.shape))
    if not x.ndim:
        return own(reshape(gather(reshape(x, (1,)), 0, reshape(index, (-1,))), index.shape))
    axis = normalize_axis(axis, x.ndim)
    return along_axis.take_along_axis(_like_index("gather", x, axis, index), index, axis)


def _like_index(name: str, x: TensorLike, axis: int, index: TensorLike) -> Any:
    """The part of `x` that an index which may be shorter refers to."""
    if index.ndim != x.ndim or any(
        m > n for k, (n, m) in enumerate(zip(x.shape, index.shape, strict=True)) if k != axis
    ):
        raise ShapeError(
            message(
                name, f"the index {index.shape} does not fit {x.shape}", expected=f"at most x's outside axis {axis}"
            )
        )
    return basic_index(x, tuple(slice(None) if k == axis else slice(0, m) for k, m in enumerate(index.shape)))


@composite(returns=Returns.COPY)
@names_range_errors
def index_select(x: TensorLike, axis: int, index: TensorLike) -> Any:
    """The slices of `x` along `axis` that the vector `index` names. Compare `torch.index_select`.

    >>> polyhal.index_select(polyhal.tensor([[1, 2], [3, 4]]), 0, polyhal.tensor([1])).tolist()
    [[3, 4]]
    """
    if not x.ndim:
        return reshape(take(reshape(x, (1,)), reshape(index, (-1,))), ())
    return slices_at(x, reshape(index, (-1,)), axis)


@composite()
def masked_fill(x: TensorLike, mask: TensorLike, value: Any) -> Any:
    """`x` with `value`, a number or a tensor without axes, where `mask` is true; `mask` is broadcast.

    >>> polyhal.masked_fill(polyhal.tensor([1, 2]), polyhal.tensor([True, False]), 0).tolist()
    [0, 2]
    """
    if hasattr(value, "ref") and value.dtype is not x.dtype:
        value = value.cast(dtype=x.dtype)
    elif x.dtype.kind == "bool":
        value = bool(value)
    return where(mask, value, x)


@composite(returns=Returns.VIEW)
def narrow(x: TensorLike, axis: int, start: int, length: int) -> Any:
    """`length` elements along `axis` from `start`, which may count from the end. Raises ShapeError.

    >>> polyhal.narrow(polyhal.arange(5), 0, 1, 3).tolist()
    [1, 2, 3]
    """
    axis = normalize_axis(axis, x.ndim)
    n, start = x.shape[axis], int(start)
    first = start + n if start < 0 else start
    if not (0 <= first <= n and 0 <= length <= n - first):
        raise ShapeError(message("narrow", f"{length} elements from {start} do not fit an axis of length {n}"))
    part = basic_index(x, (*(slice(None),) * axis, slice(first, first + length)))
    return reshape(x, x.shape) if part is x else part


@composite(returns=Returns.VIEW, aten=".int")
def select(x: TensorLike, axis: int, index: int) -> Any:
    """The slice number `index` along `axis`, without that axis. Raises IndexError."""
    return basic_index(x, (*(slice(None),) * normalize_axis(axis, x.ndim), int(index)))
