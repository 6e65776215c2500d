"""Reading and writing by index and by mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal import dtypes
from polyhal.hal.ops.indexing.rows import slices_at
from polyhal.tensor.inplace_ops import IN_PLACE
from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, arange, is_tensor, pulled_back
from polyhal.torch.table.pointwise import masked_fill

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

_INDICES = (dtypes.int64, dtypes.bool_, dtypes.int32)
"""Dtypes of indices between brackets; bytes are masks, too."""


@aten("index_select")
def index_select(x: Tensor, dim: int, index: Tensor) -> Any:
    index = F["reshape"](index, (-1,))
    return slices_at(x, index, dim, from_end=False) if x.shape else F["copy"](x)


@aten("gather")
def gather(x: Tensor, dim: int, index: Tensor, sparse_grad: bool = False) -> Any:
    return F["gather"](x, dim, index)


@aten("scatter.src")
def scatter(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    return F["scatter"](x, dim, index, src)


@aten("scatter_add")
def scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    return F["scatter_add"](x, dim, index, src)


def _items(indices: Sequence[Tensor | None]) -> tuple[Any, ...]:
    """Return Polyhal's items for indices; bytes are masks. Raises IndexError for other dtypes than PyTorch's."""
    return tuple(slice(None) if i is None else i if i.dtype in _INDICES else _as_mask(i) for i in indices)


def _as_mask(index: Tensor) -> Any:
    if index.dtype is not dtypes.uint8:
        found = f"tensors used as indices must be long, int, byte or bool tensors, and not {index.dtype.name}"
        raise IndexError(f"{found}; cast with .long()")
    return F["not_equal"](index, 0)


@aten("index_put")
def index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Any:
    if not is_tensor(values):  # a number, which stands for a 0-d tensor on the CPU
        values = F["full"]((), values, x.dtype, device=x.device)
    return F["index_put"](x, _items(indices), values, accumulate)


@aten("_index_put_impl")
def index_put_unsafe(x: Any, indices: Any, values: Any, accumulate: bool = False, unsafe: bool = False) -> Any:
    return index_put(x, indices, values, accumulate)


@aten("index.Tensor")
def index(x: Tensor, indices: Any) -> Any:
    return x[_items(indices)]


@aten("masked_scatter")
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Any:
    if not source.size and not F["any"](mask).item():
        return F["copy"](F["broadcast_to"](x, F["broadcast_tensors"](x, mask)[0].shape))
    return F["masked_scatter"](x, mask, source)


@aten("take")
def take(x: Tensor, index: Tensor) -> Any:
    """Return elements of the flattened tensor."""
    return F["reshape"](x, (-1,))[index]


@aten("repeat_interleave.Tensor")
def repeat_interleave(repeats: Tensor, *, output_size: int | None = None) -> Any:
    """Repeat each index `i` `repeats[i]` times."""
    return F["repeat_interleave"](arange(repeats.shape[0], repeats.device), repeats, output_size=output_size)


@aten("_segment_reduce_backward")
def segment_reduce_backward(
    grad: Tensor,
    output: Tensor,
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    offsets: Any = None,
    axis: int = 0,
    initial: float | None = None,
) -> Any:
    def reduced(x: Tensor) -> Any:
        return F["segment_reduce"](x, reduce, lengths=lengths, offsets=offsets, axis=axis, unsafe=True, initial=initial)

    return pulled_back(reduced, grad, data)


def _put_in_place(x: Tensor, indices: Any, values: Tensor, accumulate: bool = False, unsafe: bool = False) -> Any:
    return x.index_put_(_items(indices), values, accumulate)


def _masked_scatter_in_place(x: Tensor, mask: Tensor, source: Tensor) -> Any:
    return x if not source.size and not F["any"](mask).item() else x.masked_scatter_(mask, source)


def _fill_in_place(x: Tensor, mask: Tensor, value: Tensor | float) -> Any:
    fits = x.dtype.is_floating_point and mask.ndim <= x.ndim and not getattr(value, "shape", ())
    if not fits or any(n not in (1, m) for n, m in zip(reversed(mask.shape), reversed(x.shape), strict=False)):
        return NotImplemented
    return x.masked_fill_(mask, value)


WRITES_IN_PLACE: dict[Any, Any] = {
    masked_fill: _fill_in_place,
    scatter: IN_PLACE["scatter_"],
    scatter_add: IN_PLACE["scatter_add_"],
    masked_scatter: _masked_scatter_in_place,
    index_put: _put_in_place,
    index_put_unsafe: _put_in_place,
    **{
        F[name]: IN_PLACE[f"{name}_"] for name in ("scatter", "scatter_reduce", "index_add", "index_copy", "index_fill")
    },
}
"""By function, the method that writes only to the indexed elements of the first argument.

It returns NotImplemented, and writes nothing, for arguments that it does not cover.
"""
