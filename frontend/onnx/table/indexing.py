"""Gathers and scatters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import polyhal as ph
from polyhal.onnx.evaluation_values import as_tensor, is_host
from polyhal.onnx.registration import NodeFacts, Value, operator
from polyhal.onnx.table.shapes import integers
from polyhal.tensor import Tensor

_REDUCE = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _counted(index: Value, length: int) -> Any:
    """Return indices with negative ones counted from the end."""
    return ph.where(index < 0, index + length, index)


@operator("Gather", raw=True)
def gather(x: Value, index: Value, *, axis: int = 0, node: NodeFacts) -> Any:
    if is_host(x) and is_host(index):
        return np.take(x, index, axis)
    x = as_tensor(x, node)
    length = x.shape[axis]
    if is_host(index):
        if index.size and not -length <= index.min() <= index.max() < length:
            raise IndexError(f"indices {index.min()} to {index.max()} of an axis of {length}")
        index = np.where(index < 0, index + length, index)
        if index.size == 1:
            taken = ph.narrow(x, axis, int(index.reshape(-1)[0]), 1)
            axis %= x.ndim
            return ph.reshape(taken, (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]))
        index = ph.tensor(index, device=x.device)
    else:
        index = _counted(index, length)
    axis %= x.ndim
    taken = ph.index_select(x, axis, ph.reshape(index, (-1,)))
    return ph.reshape(taken, (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]))


@operator("GatherElements")
def gather_elements(x: Tensor, index: Tensor, *, axis: int = 0) -> Any:
    return ph.gather(x, axis, _counted(index, x.shape[axis]))


def _flat(index: Value, lengths: tuple[int, ...]) -> Any:
    """Return positions in flattened axes of tuples of indices along the last axis."""
    total: Any = 0
    for i, n in enumerate(lengths):
        total = total * n + _counted(index[..., i], n)
    return total


@operator("GatherND")
def gather_nd(x: Tensor, index: Tensor, *, batch_dims: int = 0) -> Any:
    batch, depth = x.shape[:batch_dims], index.shape[-1]
    lengths, rest = x.shape[batch_dims : batch_dims + depth], x.shape[batch_dims + depth :]
    places = _flat(index, lengths)
    count = math.prod(batch)
    if batch_dims:
        first = ph.arange(0, count, device=x.device).reshape((*batch, *[1] * (places.ndim - batch_dims)))
        places = places + first * math.prod(lengths)
    rows = ph.reshape(x, (count * math.prod(lengths), math.prod(rest)))
    return ph.reshape(ph.index_select(rows, 0, ph.reshape(places, (-1,))), (*index.shape[:-1], *rest))


@operator("ScatterElements", "Scatter")
def scatter_elements(x: Tensor, index: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none") -> Any:
    index = _counted(index, x.shape[axis])
    if reduction == "none":
        return ph.scatter(x, axis, index, updates)
    return ph.scatter_reduce(x, axis, index, updates, _REDUCE[reduction])


@operator("ScatterND")
def scatter_nd(x: Tensor, index: Tensor, updates: Tensor, *, reduction: str = "none") -> Any:
    depth = index.shape[-1]
    rest = math.prod(x.shape[depth:])
    rows = ph.reshape(x, (math.prod(x.shape[:depth]), rest))
    places = ph.reshape(_flat(index, x.shape[:depth]), (-1, 1))
    places = ph.broadcast_to(places, (places.shape[0], rest))
    new = ph.reshape(updates, places.shape)
    if reduction == "none":
        return ph.reshape(ph.scatter(rows, 0, places, new), x.shape)
    return ph.reshape(ph.scatter_reduce(rows, 0, places, new, _REDUCE[reduction]), x.shape)


@operator("TensorScatter", host=("write_indices",))
def tensor_scatter(
    cache: Tensor, update: Tensor, write_indices: Value = None, *, axis: int = -2, mode: str = "linear"
) -> Any:
    axis %= cache.ndim
    length, count = cache.shape[axis], update.shape[axis]
    begins = integers(write_indices) if write_indices is not None else (0,) * cache.shape[0]
    places = np.array(begins)[:, None] + np.arange(count)
    places = places % length if mode == "circular" else places
    if places.size and places.max() >= length:
        raise IndexError(f"index {places.max()} of an axis of {length}")
    shape = [1] * cache.ndim
    shape[0], shape[axis] = cache.shape[0], count
    index = ph.broadcast_to(ph.tensor(places.reshape(shape), device=cache.device), update.shape)
    return ph.scatter(cache, axis, index, update)


@operator("OneHot", host=("depth", "values"))
def one_hot(index: Tensor, depth: Value, values: Value, *, axis: int = -1) -> Any:
    count = integers(depth)[0]
    axis = axis % (index.ndim + 1)
    shape = [1] * (index.ndim + 1)
    shape[axis] = count
    places = ph.tensor(np.arange(count).reshape(shape), device=index.device).to(index.dtype)
    hit = ph.unsqueeze(_counted(index, count), axis) == places
    off, on = (ph.tensor(v, device=index.device) for v in np.asarray(values).reshape(-1))
    return ph.where(hit, on, off)
