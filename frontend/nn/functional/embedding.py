"""Lookups in tables: rows by index, and sums, means and maxima of bags of rows."""

from __future__ import annotations

import math
from typing import Any, Literal

from polyhal import functions as ops
from polyhal.creation import ones
from polyhal.hal import dtypes
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.indexing.range_errors import names_range_errors
from polyhal.tape.function import Context, Function
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor

_scatter_rows, _sum_bags = FUNCTIONS["scatter_rows"], FUNCTIONS["sum_bags"]
BagMode = Literal["sum", "mean", "max"]


class _ScaleGradient(Function):
    """The identity, whose gradient is multiplied by `scale`."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(scale)
        return x

    @staticmethod
    def backward(ctx: Context, *grads: Any) -> Any:
        (scale,) = ctx.saved_tensors
        return grads[0] * scale, None


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Return rows of `weight` (R, W) by index: (...) to (..., W). Row `padding_idx` receives no gradient.

    With `max_norm`, rows that are looked up and have a larger `norm_type`-norm are scaled down first, in `weight` itself.
    `scale_grad_by_freq` divides the gradient of a row by how often it occurs. `sparse` is accepted: gradients are dense.
    """
    if max_norm is not None:
        _limit_rows(weight, input, max_norm, norm_type)
    out: Tensor = ops.embedding(weight, input)
    if not weight.requires_grad:
        return out
    if scale_grad_by_freq:
        counts = _occurrences(input, weight)
        out = _ScaleGradient.apply(out, 1.0 / ops.embedding(counts, input))
    if padding_idx is not None:
        padding_idx %= weight.shape[0]
        out = ops.where(ops.unsqueeze(ops.equal(input, padding_idx), -1), weight.detach()[padding_idx], out)
    return out


def _occurrences(index: Tensor, weight: Tensor) -> Tensor:
    """How often each row of `weight` is named, (R, 1)."""
    out: Tensor = _scatter_rows(ones((*index.shape, 1), weight.dtype, weight.device), index, weight.shape[0])
    return out


def _limit_rows(weight: Tensor, index: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale the rows that `index` names down to `max_norm`, in place."""
    with no_grad():
        rows = weight.detach()
        size = ops.abs(rows)
        if norm_type == math.inf:
            norm = ops.max(size, 1, True)
        else:
            norm = ops.pow(ops.sum(ops.pow(size, norm_type), 1, True), 1 / norm_type)
        used = ops.less(0, _occurrences(index, rows))
        factor = ops.where(ops.logical_and(used, ops.less(max_norm, norm)), max_norm / (norm + 1e-7), 1.0)
        rows.mul_(factor)


@names_range_errors
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: BagMode = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sum, mean or maximum of the rows of `weight` (R, W) that each bag of indices names: (B, W).

    `input` is (B, L), or all bags one after the other, which start at `offsets` (B,); with `include_last_offset` the last
    offset ends the last bag. `per_sample_weights`, only for "sum", multiply the rows. Indices equal to `padding_idx` do
    not count. An empty bag is zero. Raises ShapeError and ValueError. See `embedding` for the other arguments.
    """
    if mode not in ("sum", "mean", "max"):
        raise ValueError(message("embedding_bag", f"mode {mode!r}", expected="sum, mean or max"))
    if per_sample_weights is not None and (mode != "sum" or per_sample_weights.shape != input.shape):
        problem = f"per_sample_weights {per_sample_weights.shape} for input {input.shape} and mode {mode!r}"
        raise ValueError(message("embedding_bag", problem, expected="equal shapes, and mode 'sum'"))
    if scale_grad_by_freq and mode == "max":
        raise ValueError(message("embedding_bag", "scale_grad_by_freq has no meaning for maxima", expected="False"))
    _check_bags(input, offsets)
    if mode != "max" and padding_idx is None and not scale_grad_by_freq and input.size and weight.size:
        if max_norm is not None:
            _limit_rows(weight, input, max_norm, norm_type)
        return _summed_bags(input, weight, offsets, per_sample_weights, include_last_offset, mode)
    rows = embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)
    if per_sample_weights is not None:
        rows = rows * ops.unsqueeze(per_sample_weights, -1)
    counted = None if padding_idx is None else ops.not_equal(input, padding_idx % weight.shape[0])
    if offsets is None:
        return _reduce_bags(rows, counted, mode)
    return _reduce_ranges(rows, counted, offsets, include_last_offset, mode)


def _check_bags(input: Tensor, offsets: Tensor | None) -> None:
    """Raise ValueError or ShapeError unless the input is (B, L), or (N,) with offsets."""
    if input.ndim == 2 and offsets is not None:
        raise ValueError(message("embedding_bag", "offsets are for input (N,)", expected="None for (B, L)"))
    if input.ndim != 2 and (input.ndim != 1 or offsets is None or offsets.ndim != 1):
        shapes = f"input {input.shape}, offsets {None if offsets is None else offsets.shape}"
        raise ShapeError(message("embedding_bag", shapes, expected="(B, L), or (N,) and (B,)"))


def _summed_bags(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None,
    scales: Tensor | None,
    include_last_offset: bool,
    mode: BagMode,
) -> Tensor:
    """Return sums or means in one op that reads every row once."""
    length = input.shape[1] if offsets is None else 0
    flat = None if scales is None else ops.reshape(scales, (-1,))
    index = ops.reshape(input, (-1,))
    total: Tensor = _sum_bags(weight, index, offsets, flat, length, not include_last_offset and offsets is not None)
    if mode == "sum":
        return total
    if offsets is None:
        return total * (1.0 / length)
    ends = offsets[1:]
    if not include_last_offset:
        ends = ops.concat([ends, ops.full((1,), index.shape[0], offsets.dtype, device=offsets.device)], 0)
    members = (ends - offsets[: total.shape[0]]).cast(dtype=total.dtype)
    return total / ops.maximum(ops.unsqueeze(members, 1), 1.0)


def _reduce_bags(rows: Tensor, counted: Tensor | None, mode: BagMode) -> Tensor:
    """Bags of equal length (B, L, W)."""
    if rows.shape[1] == 0:
        return ops.sum(rows, 1)
    if mode == "max" and counted is None:
        return ops.max(rows, 1)
    if mode == "max":
        return _masked_max(rows, ops.unsqueeze(counted, -1), 1)
    total = ops.sum(rows if counted is None else ops.where(ops.unsqueeze(counted, -1), rows, 0.0), 1)
    if mode == "sum":
        return total
    if counted is None:
        return total * (1.0 / rows.shape[1])
    return total / ops.maximum(ops.sum(counted.cast(dtype=rows.dtype), 1, True), 1.0)


def _reduce_ranges(
    rows: Tensor, counted: Tensor | None, offsets: Tensor, include_last_offset: bool, mode: BagMode
) -> Tensor:
    """Compute concatenated bags (N, W)."""
    starts = offsets[:-1] if include_last_offset else offsets
    bags, count = starts.shape[0], rows.shape[0]
    position = ops.arange(0, count, 1, starts.dtype, device=rows.device)
    began = ops.less_equal(ops.unsqueeze(starts, 0), ops.unsqueeze(position, 1))
    bag = ops.sum(began.cast(dtype=dtypes.int32), 1) - 1
    used = ops.less_equal(0, bag)
    if include_last_offset:
        used = ops.logical_and(used, ops.less(position, offsets[-1]))
    used = used if counted is None else ops.logical_and(used, counted)
    if mode == "max":
        # Compare every row with every bag: there is no scatter op with a maximum.
        member = ops.equal(
            ops.unsqueeze(bag, 0), ops.reshape(ops.arange(0, bags, 1, bag.dtype, device=rows.device), (-1, 1))
        )
        member = ops.unsqueeze(ops.logical_and(member, ops.unsqueeze(used, 0)), -1)
        return _masked_max(ops.unsqueeze(rows, 0), member, 1)
    safe = ops.where(used, bag, bags)  # a row past the last bag collects the ignored ones
    total: Tensor = _scatter_rows(rows, safe, bags + 1)[:bags]
    if mode == "sum":
        return total
    members = _scatter_rows(ones((count, 1), rows.dtype, rows.device), safe, bags + 1)[:bags]
    return total / ops.maximum(members, 1.0)


def _masked_max(x: Tensor, mask: Tensor, axis: int) -> Tensor:
    """Maximum over `axis` of the elements where `mask`; 0 where there are none."""
    if 0 in x.shape:
        return ops.sum(ops.where(mask, x, 0.0), axis)
    largest = ops.max(ops.where(mask, x, -math.inf), axis)
    return ops.where(ops.any(mask, axis), largest, 0.0)
