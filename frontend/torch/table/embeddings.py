"""Rows of a table by index, and sums, means and maxima of bags of rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from polyhal.hal import dtypes
from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, cast, zeros

if TYPE_CHECKING:
    from polyhal.hal.dtypes import DType
    from polyhal.tensor import Tensor

SUM, MEAN, MAX = 0, 1, 2


@aten("embedding")
def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    return F["embedding"](weight, indices)


def _occurrences(indices: Tensor, rows: int, dtype: DType | None) -> Any:
    """Count the occurrences of each row, (rows, 1)."""
    ones = F["full"]((indices.size, 1), 1, dtype, device=indices.device)
    return F["scatter_rows"](ones, F["reshape"](indices, (-1,)), rows)


@aten("embedding_dense_backward")
def embedding_backward(
    grad: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    if padding_idx >= 0:
        grad = F["where"](F["unsqueeze"](F["not_equal"](indices, padding_idx), -1), grad, 0.0)
    rows, index = F["reshape"](grad, (indices.size, grad.shape[-1])), F["reshape"](indices, (-1,))
    if scale_grad_by_freq and index.size:
        rows = rows / F["embedding"](_occurrences(index, num_weights, rows.dtype), index)
    return F["scatter_rows"](rows, index, num_weights)


@aten("embedding_renorm_")
def embedding_renorm(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Any:
    """Return the table with the rows at `indices` scaled down to `max_norm`."""
    if not indices.size:
        return weight
    norms = F["vector_norm"](weight, 1, True, float(norm_type))
    used = F["greater"](_occurrences(indices, weight.shape[0], dtypes.float32), 0)
    scaled = F["logical_and"](used, norms > max_norm)
    return F["where"](scaled, weight * (max_norm / (norms + 1e-7)), weight)


# --- embedding bags -------------------------------------------------------------------------------------------------


def _bag_of(indices: Tensor, offsets: Tensor) -> Any:
    """Return the bag of each index."""
    places = F["arange"](0, indices.shape[0], 1, offsets.dtype, device=indices.device)
    return cast(F["searchsorted"](offsets, places, right=True) - 1, indices.dtype)


def _scales(indices: Tensor, scales: Tensor | None, padding_idx: int, dtype: DType | None) -> Any:
    """Return the factor of each row: 0 for padding; None if all are 1."""
    if padding_idx < 0:
        return scales
    counts = F["not_equal"](indices, padding_idx)
    return cast(counts, dtype) if scales is None else F["where"](counts, scales, 0.0)


def _per_bag(values: Tensor, offsets: Tensor, open_end: bool) -> Any:
    """Sum a number per index over each bag, (B, 1)."""
    places = F["arange"](0, values.shape[0], 1, offsets.dtype, device=values.device)
    return F["sum_bags"](F["reshape"](values, (-1, 1)), places, offsets, None, 0, open_end)


@aten("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    scales: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """Return the bags, the bag of each index, the number of rows in each bag, and for maxima the rows of the maxima."""
    bags, width, open_end = offsets.shape[0] - include_last_offset, weight.shape[1], not include_last_offset
    offsets = cast(offsets, indices.dtype)
    if not indices.size or not bags:
        sizes, rows = (zeros(s, indices.dtype, indices.device) for s in ((bags,), (bags, width)))
        return (
            zeros((bags, width), weight.dtype, weight.device),
            zeros((0,), indices.dtype, indices.device),
            sizes,
            rows,
        )
    bag = _bag_of(indices, offsets)
    counted = _scales(indices, None, padding_idx, dtypes.float32)
    counted = F["full"](indices.shape, 1, dtypes.float32, device=indices.device) if counted is None else counted
    sizes = _per_bag(counted, offsets, open_end)
    members = cast(F["reshape"](sizes, (-1,)), indices.dtype)
    if mode == MAX:
        largest, rows = _maxima(weight, indices, bag, counted, bags)
        return F["where"](sizes > 0, largest, 0.0), bag, members, rows
    scales = _scales(indices, scales, padding_idx, weight.dtype)
    total = F["sum_bags"](weight, indices, offsets, scales, 0, open_end)
    out = total if mode == SUM else cast(total / F["maximum"](sizes, 1.0), total.dtype)
    return out, bag, members, zeros((bags,), indices.dtype, indices.device)


def _maxima(weight: Tensor, indices: Tensor, bag: Tensor, counted: Any, bags: int) -> tuple[Any, Any]:
    """Return maxima of bags, and the row of each maximum. Reads every row for every bag."""
    numbers = F["reshape"](F["arange"](0, bags, 1, bag.dtype, device=bag.device), (-1, 1))
    member = F["logical_and"](F["equal"](numbers, bag), counted > 0)
    rows = F["where"](F["unsqueeze"](member, -1), F["unsqueeze"](F["embedding"](weight, indices), 0), -math.inf)
    found = F["take"](indices, F["reshape"](F["argmax"](rows, 1), (-1,)), 0)
    return F["max"](rows, 1), F["reshape"](found, (bags, weight.shape[1]))


@aten("_embedding_bag_backward")
def embedding_bag_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bag: Tensor,
    members: Tensor,
    rows: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    scales: Tensor,
    padding_idx: int = -1,
) -> Any:
    return embedding_bag_dense_backward(
        grad, indices, bag, members, rows, num_weights, scale_grad_by_freq, mode, scales, padding_idx
    )


@aten("_embedding_bag_dense_backward")
def embedding_bag_dense_backward(
    grad: Tensor,
    indices: Tensor,
    bag: Tensor,
    members: Tensor,
    rows: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    scales: Tensor | None,
    padding_idx: int = -1,
) -> Any:
    base = zeros((num_weights, grad.shape[1]), grad.dtype, grad.device)
    if not indices.size or not grad.size:
        return base
    counts = F["unsqueeze"](members, 1)
    if mode == MAX:
        return F["scatter_add"](base, 0, rows, F["where"](counts > 0, grad, 0.0))
    if mode == MEAN:
        grad = grad / cast(F["maximum"](counts, 1), grad.dtype)
    share = F["embedding"](grad, bag)  # zeros for an index after the last bag
    scales = _scales(indices, scales, padding_idx, grad.dtype)
    if scales is not None:
        share = share * F["unsqueeze"](scales, 1)
    if scale_grad_by_freq:
        share = share / F["embedding"](_occurrences(indices, num_weights, grad.dtype), indices)
    return F["scatter_rows"](share, indices, num_weights)


@aten("_embedding_bag_per_sample_weights_backward")
def embedding_bag_scales_backward(
    grad: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, bag: Tensor, mode: int, padding_idx: int = -1
) -> Any:
    if not indices.size:
        return zeros(indices.shape, grad.dtype, grad.device)
    found = F["sum"](F["embedding"](grad, _bag_of(indices, offsets)) * F["embedding"](weight, indices), 1)
    return found if padding_idx < 0 else F["where"](F["not_equal"](indices, padding_idx), found, 0.0)
