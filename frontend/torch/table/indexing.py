"""Reading and writing by index and by mask."""

from __future__ import annotations

from typing import Any

from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, arange, cast, pulled_back
from polyhal.torch.table.pointwise import masked_fill


@aten("masked_select")
def masked_select(x: Any, mask: Any) -> Any:
    return F["masked_select"](x, mask)


@aten("nonzero")
def nonzero(x: Any) -> Any:
    return F["argwhere"](x)


@aten("index_select")
def index_select(x: Any, dim: int, index: Any) -> Any:
    index = F["reshape"](index, (-1,))
    return F["index_select"](x, dim, index) if x.shape else F["copy"](x)


@aten("gather")
def gather(x: Any, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    return F["gather"](x, dim, index)


def _same_dtype(x: Any, src: Any) -> None:
    """Raise RuntimeError, as PyTorch does, where a source would have to be cast."""
    if src.dtype is not x.dtype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")


@aten("scatter.src")
def scatter(x: Any, dim: int, index: Any, src: Any) -> Any:
    _same_dtype(x, src)
    return F["scatter"](x, dim, index, src)


@aten("scatter.value")
def scatter_value(x: Any, dim: int, index: Any, value: Any) -> Any:
    return F["scatter"](x, dim, index, value=value)


@aten("scatter.value_reduce")
def scatter_value_with(x: Any, dim: int, index: Any, value: Any, *, reduce: str) -> Any:
    return F["scatter"](x, dim, index, value=value, reduce=reduce)


@aten("scatter.reduce")
def scatter_with(x: Any, dim: int, index: Any, src: Any, reduce: str) -> Any:
    return F["scatter"](x, dim, index, src, reduce=reduce)


@aten("scatter_add")
def scatter_add(x: Any, dim: int, index: Any, src: Any) -> Any:
    _same_dtype(x, src)
    return F["scatter_add"](x, dim, index, src)


@aten("scatter_reduce.two")
def scatter_reduce(x: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool = True) -> Any:
    return F["scatter_reduce"](x, dim, index, src, reduce, include_self=include_self)


@aten("index_put")
def index_put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    return F["index_put"](x, tuple(slice(None) if i is None else i for i in indices), cast(values, x.dtype), accumulate)


@aten("_index_put_impl")
def index_put_unsafe(x: Any, indices: Any, values: Any, accumulate: bool = False, unsafe: bool = False) -> Any:
    return index_put(x, indices, values, accumulate)


@aten("index.Tensor")
def index(x: Any, indices: Any) -> Any:
    return x[tuple(slice(None) if i is None else i for i in indices)]


@aten("index_add")
def index_add(x: Any, dim: int, index: Any, source: Any, alpha: Any = 1) -> Any:
    return F["index_add"](x, dim, index, source, alpha=alpha)


@aten("index_copy")
def index_copy(x: Any, dim: int, index: Any, source: Any) -> Any:
    return F["index_copy"](x, dim, index, source)


@aten("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    return F["index_fill"](x, dim, index, value)


@aten("index_reduce")
def index_reduce(x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Any:
    return F["index_reduce"](x, dim, index, source, reduce, include_self=include_self)


@aten("masked_scatter")
def masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    if not source.size and not F["any"](mask).item():
        return F["copy"](F["broadcast_to"](x, F["broadcast_tensors"](x, mask)[0].shape))
    return F["masked_scatter"](x, mask, source)


@aten("take")
def take(x: Any, index: Any) -> Any:
    """Return elements of the flattened tensor."""
    return F["reshape"](x, (-1,))[index]


@aten("put", "put_")
def put(x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    return F["put"](x, index, source, accumulate)


@aten("nonzero_static")
def nonzero_static(x: Any, *, size: int, fill_value: int = -1) -> Any:
    return F["nonzero_static"](x, size=size, fill_value=fill_value)


@aten("repeat_interleave.Tensor")
def repeat_interleave(repeats: Any, *, output_size: int | None = None) -> Any:
    """Repeat each index `i` `repeats[i]` times."""
    return F["repeat_interleave"](arange(repeats.shape[0], repeats.device), repeats, output_size=output_size)


@aten("segment_reduce")
def segment_reduce(
    data: Any, reduce: str, *, lengths: Any = None, indices: Any = None, offsets: Any = None, axis: int = 0,
    unsafe: bool = False, initial: float | None = None,
) -> Any:  # fmt: skip
    return F["segment_reduce"](
        data, reduce, lengths=lengths, offsets=offsets, axis=axis, unsafe=unsafe, initial=initial
    )


@aten("_segment_reduce_backward")
def segment_reduce_backward(
    grad: Any, output: Any, data: Any, reduce: str, *, lengths: Any = None, offsets: Any = None, axis: int = 0,
    initial: float | None = None,
) -> Any:  # fmt: skip
    def reduced(x: Any) -> Any:
        return segment_reduce(x, reduce, lengths=lengths, offsets=offsets, axis=axis, unsafe=True, initial=initial)

    return pulled_back(reduced, grad, data)


@aten("select_scatter")
def select_scatter(x: Any, source: Any, dim: int, index: int) -> Any:
    return F["select_scatter"](x, source, dim, index)


@aten("slice_scatter")
def slice_scatter(
    x: Any, source: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    return F["slice_scatter"](x, source, dim, start, end, step)


@aten("diagonal_scatter")
def diagonal_scatter(x: Any, source: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return F["diagonal_scatter"](x, source, offset, dim1, dim2)


def _put_in_place(x: Any, indices: Any, values: Any, accumulate: bool = False, unsafe: bool = False) -> Any:
    return x.index_put_(indices, cast(values, x.dtype), accumulate)


def _add_in_place(x: Any, dim: int, index: Any, source: Any, alpha: Any = 1) -> Any:
    return x.index_add_(dim, index, source, alpha=alpha)


def _scatter_in_place(x: Any, dim: int, index: Any, src: Any) -> Any:
    _same_dtype(x, src)
    return x.scatter_(dim, index, src)


def _scatter_add_in_place(x: Any, dim: int, index: Any, src: Any) -> Any:
    _same_dtype(x, src)
    return x.scatter_add_(dim, index, src)


def _masked_scatter_in_place(x: Any, mask: Any, source: Any) -> Any:
    return x if not source.size and not F["any"](mask).item() else x.masked_scatter_(mask, source)


def _fill_in_place(x: Any, mask: Any, value: Any) -> Any:
    fits = x.dtype.is_floating_point and mask.ndim <= x.ndim and not getattr(value, "shape", ())
    if not fits or any(n not in (1, m) for n, m in zip(reversed(mask.shape), reversed(x.shape), strict=False)):
        return NotImplemented
    return x.masked_fill_(mask, value)


WRITES_IN_PLACE: dict[Any, Any] = {
    masked_fill: _fill_in_place,
    scatter: _scatter_in_place,
    scatter_value: lambda x, dim, index, value: x.scatter_(dim, index, value=value),
    scatter_with: lambda x, dim, index, src, reduce: x.scatter_(dim, index, src, reduce=reduce),
    scatter_value_with: lambda x, dim, index, value, *, reduce: x.scatter_(dim, index, value=value, reduce=reduce),
    scatter_add: _scatter_add_in_place,
    scatter_reduce: lambda x, dim, index, src, reduce, include_self=True: x.scatter_reduce_(
        dim, index, src, reduce, include_self=include_self
    ),
    masked_scatter: _masked_scatter_in_place,
    index_put: _put_in_place,
    index_put_unsafe: _put_in_place,
    index_add: _add_in_place,
    index_copy: lambda x, dim, index, source: x.index_copy_(dim, index, source),
    index_fill: lambda x, dim, index, value: x.index_fill_(dim, index, value),
}
"""By function, the method that writes only to the indexed elements of the first argument.

It returns NotImplemented, and writes nothing, for arguments that it does not cover.
"""
