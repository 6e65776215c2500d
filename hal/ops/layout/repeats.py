"""Composites that repeat, cut and extend one tensor under PyTorch's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.core.memory.host_memory import check_host_memory
from polyhal.hal.layout import normalize_axis
from polyhal.hal.ops.composite import Returns, composite
from polyhal.hal.ops.indexing.rows import slices_at
from polyhal.hal.ops.layout.axes import unsqueeze
from polyhal.hal.ops.layout.rearrange import ravel
from polyhal.hal.ops.layout.regions import pad as add_border
from polyhal.hal.ops.layout.regions import split
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.sliding_windows import windows
from polyhal.hal.ops.layout.views import broadcast_to, permute, reshape
from polyhal.hal.ops.tensor_like import Array, TensorLike


@composite(returns=Returns.COPY)
def repeat_interleave(x: Any, repeats: Any = None, axis: int | None = None, *, output_size: int | None = None) -> Any:
    """Each element `repeats` times in a row along an axis; without one, the elements in row-major order.

    `repeats` may be a tensor with a count for each place along the axis: it is read from the device, so that this cannot be
    captured. Without values, each position is repeated as often as its count. Raises ValueError for a negative number.

    >>> polyhal.repeat_interleave(polyhal.tensor([1, 2]), 2).tolist()
    [1, 1, 2, 2]
    """
    if repeats is None:
        counts = x.tolist()
        return _taken_often(_positions(np.arange(len(counts)), x), counts, 0)
    if axis is None:
        x, axis = ravel(x), 0
    at = normalize_axis(axis, x.ndim)
    counts = repeats.tolist() if hasattr(repeats, "tolist") else repeats
    if not isinstance(counts, int):
        counts = [*counts]
        if len(counts) > 1 or x.shape[at] == 1:
            return _taken_often(x, counts, at)
        (counts,) = counts
    if counts < 0:
        raise ValueError(f"[repeat_interleave] {counts} repeats; expected 0 or more")
    shape = (*x.shape[: at + 1], counts, *x.shape[at + 1 :])
    return reshape(broadcast_to(unsqueeze(x, at + 1), shape), (*shape[:at], shape[at] * counts, *shape[at + 2 :]))


@composite(method=False, returns=Returns.COPY)
def repeat(x: TensorLike, repeats: Any, axis: int | None = None) -> Any:
    """Each element `repeats` times in a row along an axis, as `repeat_interleave`. The method `Tensor.repeat` is PyTorch's."""
    return repeat_interleave(x, repeats, axis)


def _taken_often(x: TensorLike, counts: list[int], axis: int) -> Any:
    if len(counts) != x.shape[axis] or min(counts, default=0) < 0:
        problem = f"counts {counts} for an axis of length {x.shape[axis]}"
        raise ValueError(f"[repeat_interleave] {problem}; expected one of 0 or more for each place")
    places = np.repeat(np.arange(len(counts)), np.array(counts, np.int64))
    return slices_at(x, _positions(places, x), axis)


def _positions(numbers: Array, x: TensorLike) -> Any:
    """Numbers of elements as a tensor on the device of `x`."""
    return dispatch.frontend.convert(np.asarray(numbers, np.int64), x.device)


@composite(returns=Returns.VIEW)
def split_with_sizes(x: TensorLike, split_sizes: Sequence[int], axis: int = 0) -> tuple[Any, ...]:
    """Consecutive parts of the sizes listed along an axis."""
    return split(x, split_sizes, axis)


@composite(method=False, returns=Returns.COPY)
def constant_pad_nd(x: TensorLike, pad: Sequence[int], value: float = 0) -> Any:
    """The tensor with `value` around it; widths as pairs from the last axis on, as in `nn.functional.pad`, cut if negative.

    Raises ValueError for too many widths, and for widths that cut more than there is.
    """
    if len(pad) % 2 or len(pad) > 2 * x.ndim:
        raise ValueError(f"[constant_pad_nd] {len(pad)} widths; expected a pair for each of {x.ndim} axes at most")
    pairs = [(0, 0)] * (x.ndim - len(pad) // 2)
    pairs += [(pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2)]
    starts = tuple(max(-a, 0) for a, _ in pairs)
    lengths = tuple(n + min(a, 0) + min(b, 0) for n, (a, b) in zip(x.shape, pairs, strict=True))
    if any(n < 0 for n in lengths):
        raise ValueError(f"[constant_pad_nd] widths {tuple(pad)} cut more than shape {x.shape} has")
    kept = x if lengths == tuple(x.shape) else slice_(x, starts, lengths, (1,) * x.ndim)
    return add_border(kept, tuple((max(a, 0), max(b, 0)) for a, b in pairs), value)


@composite()
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:  # noqa: N803  PyTorch's name
    """The matrix whose columns are powers of a vector, from the highest, N - 1, to 0 unless `increasing`.

    Raises ValueError for a tensor that is not a vector.
    """
    if x.ndim != 1:
        raise ValueError(f"[vander] shape {x.shape}; expected a vector")
    count = x.shape[0] if N is None else N
    check_host_memory("vander", 3 * 8 * count)
    exponents = np.arange(count) if increasing else np.arange(count)[::-1]
    base = x if x.dtype.is_floating_point else x.cast(dtype=dtypes.int64)
    return unsqueeze(base, 1).pow(type(x)(exponents.copy(), dtype=base.dtype, device=x.device))


def sliding_windows(x: Any, dimension: int, size: int, step: int) -> Any:
    """Windows of `size` elements along an axis, `step` apart, along a new last axis: PyTorch's `Tensor.unfold`. A view."""
    if x.ndim == 0:
        return slice_(reshape(x, (1,)), (0,), (size,), (1,))
    at = normalize_axis(dimension, x.ndim)
    rest = tuple(a for a in range(x.ndim) if a != at)
    found = windows(permute(x, (*rest, at)), (size,), (step,), (1,))
    back = [*range(x.ndim - 1)]
    back.insert(at, x.ndim - 1)
    return permute(found, (*back, x.ndim))
