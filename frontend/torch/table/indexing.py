"""Reading and writing by index and by mask."""

from __future__ import annotations

from typing import Any

from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, UnsupportedArgumentsError, cast


def _same_rank(x: Any, index: Any) -> None:
    """Raise UnsupportedArgumentsError for tensors without axes, which PyTorch lets stand for vectors."""
    if not x.shape or index.ndim != x.ndim:
        raise UnsupportedArgumentsError


@aten("masked_select")
def masked_select(x: Any, mask: Any) -> Any:
    return F["masked_select"](x, mask)


@aten("nonzero")
def nonzero(x: Any) -> Any:
    return F["argwhere"](x)


@aten("index_select")
def index_select(x: Any, dim: int, index: Any) -> Any:
    return F["index_select"](x, dim, index) if x.shape else F["copy"](x)


@aten("gather")
def gather(x: Any, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    _same_rank(x, index)
    return F["gather"](x, dim, index)


@aten("scatter.src")
def scatter(x: Any, dim: int, index: Any, src: Any) -> Any:
    _same_rank(x, index)
    return F["scatter"](x, dim, index, src)


@aten("scatter.value")
def scatter_value(x: Any, dim: int, index: Any, value: Any) -> Any:
    _same_rank(x, index)
    return F["scatter"](x, dim, index, value=value)


@aten("scatter.reduce")
def scatter_with(x: Any, dim: int, index: Any, src: Any, reduce: str) -> Any:
    _same_rank(x, index)
    return F["scatter"](x, dim, index, src, reduce=reduce)


@aten("scatter_add")
def scatter_add(x: Any, dim: int, index: Any, src: Any) -> Any:
    _same_rank(x, index)
    return F["scatter_add"](x, dim, index, src)


@aten("scatter_reduce.two")
def scatter_reduce(x: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool = True) -> Any:
    _same_rank(x, index)
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
    _same_rank(x, x)
    return F["index_add"](x, dim, index, source, alpha=alpha)
