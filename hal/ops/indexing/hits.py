"""Where a mask is true, and elements chosen by masks: nonzero, argwhere, masked_select, masked_scatter, unravel_index.

A prefix sum of the mask numbers its hits, and a binary search in it finds each of them. So only one number is read from the
device: how many there are, which decides the shape of the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.layout import broadcast_shapes
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.indexing.rows import embedding
from polyhal.hal.ops.layout.creation import arange, full
from polyhal.hal.ops.layout.regions import copy, stack
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import broadcast_to, reshape
from polyhal.hal.ops.pointwise import selection
from polyhal.hal.ops.pointwise.logic import less_equal, not_equal
from polyhal.hal.ops.pointwise.rounding import floor_divide, remainder
from polyhal.hal.ops.pointwise.selection import maximum, minimum
from polyhal.hal.ops.reductions.scan import cumsum
from polyhal.hal.ops.reductions.search import searchsorted
from polyhal.hal.ops.reductions.sums import sum_
from polyhal.hal.ops.returns import own
from polyhal.hal.ops.tensor_like import TensorLike

if TYPE_CHECKING:
    from polyhal.hal.device import Device


def _flat_mask(x: TensorLike) -> Any:
    return reshape(x if x.dtype is dtypes.bool_ else not_equal(x, 0), (-1,))


def hit_positions(op: str, x: Any) -> Any:
    """The row-major positions (int64) of the elements that are not zero. Raises CaptureError in a captured step."""
    dispatch.require_execution(
        op, "the number of hits is only being recorded", fix="call it outside the captured step, or use where"
    )
    if not x.size:
        return full((0,), 0, dtypes.int64, device=x.device)
    ranks = cumsum(_flat_mask(x), 0)
    count = int(slice_(ranks, (x.size - 1,), (1,), (1,)).item())
    return searchsorted(ranks, arange(1, count + 1, 1, dtypes.int64, device=x.device))


def coordinates(positions: TensorLike, shape: Sequence[int]) -> list[Any]:
    """The numbers along each axis of elements at row-major positions."""
    result: list[Any] = []
    for k, length in reversed(list(enumerate(shape))):
        result.append(remainder(positions, length) if k and length else positions)
        positions = floor_divide(positions, length) if k and length else positions
    return result[::-1]


def _table(columns: list[TensorLike], rows: int, device: Device) -> Any:
    return stack(columns, 1) if columns else full((rows, 0), 0, dtypes.int64, device=device)


@composite()
def nonzero(x: TensorLike, *, as_tuple: bool = True) -> Any:
    """Where `x` is not zero: one int64 vector per axis, in row-major order; with `as_tuple=False` the columns of `argwhere`.

    The number of hits is read from the device. Raises CaptureError in a captured step.

    >>> (positions,) = polyhal.nonzero(polyhal.tensor([0, 5, 0, 7]))
    >>> positions.tolist()
    [1, 3]
    """
    if not as_tuple:
        return argwhere(x)
    return tuple(coordinates(hit_positions("nonzero", x), x.shape or (1,)))


@composite(method=False)
def where(condition: TensorLike, x: TensorLike | float | None = None, y: TensorLike | float | None = None) -> Any:
    """`x` where `condition` is true, else `y`; with the condition alone, where it is true, as `nonzero`.

    Raises CaptureError for the condition alone in a captured step. All three broadcast.

    >>> x = polyhal.tensor([-1.0, 2.0])
    >>> polyhal.where(x > 0, x, 0.0).tolist()
    [0.0, 2.0]
    """
    return nonzero(condition) if x is None and y is None else selection.where(condition, x, y)


@composite(aten="nonzero")
def argwhere(x: TensorLike) -> Any:
    """Where `x` is not zero: int64 (hits, axes), in row-major order.

    The number of hits is read from the device. Raises CaptureError in a captured step.
    """
    positions = hit_positions("argwhere", x)
    return _table(coordinates(positions, x.shape), positions.shape[0], x.device)


@composite(aten=".default")
def nonzero_static(x: TensorLike, *, size: int, fill_value: int = -1) -> Any:
    """The first `size` rows of `argwhere`, and `fill_value` in the rows beyond the last hit: int64 (size, axes).

    Nothing is read from the device, so that it can be captured.
    """
    if not x.size or not size or not x.ndim:
        hits = int(min(size, 1) and not x.ndim)
        return full((size, x.ndim), fill_value if not hits else 0, dtypes.int64, device=x.device)
    ranks = cumsum(_flat_mask(x), 0)
    wanted = arange(1, size + 1, 1, dtypes.int64, device=x.device)
    positions = minimum(searchsorted(ranks, wanted), x.size - 1)
    there = less_equal(wanted, slice_(ranks, (x.size - 1,), (1,), (1,)))
    return _table([selection.where(there, c, fill_value) for c in coordinates(positions, x.shape)], size, x.device)


@composite()
def unravel_index(indices: Any, shape: int | Sequence[int]) -> tuple[Any, ...]:
    """The numbers (int64) along each axis of `shape` of elements at row-major positions. Compare `torch.unravel_index`.

    Raises TypeError for indices that are not integers.
    """
    if not indices.dtype.is_integral:
        raise TypeError(message("unravel_index", f"the indices are {indices.dtype.name}", expected="integers"))
    positions = indices if indices.dtype is dtypes.int64 else indices.cast(dtype=dtypes.int64)
    return tuple(coordinates(positions, (shape,) if isinstance(shape, int) else tuple(shape)))


def _mask_of(op: str, mask: TensorLike) -> Any:
    if mask.dtype is not dtypes.bool_:
        raise TypeError(message(op, f"the mask is {mask.dtype.name}", expected="bool"))
    return mask


@composite(aten=".default")
def masked_select(x: TensorLike, mask: TensorLike) -> Any:
    """The elements of `x` where `mask` is true, in row-major order; both are broadcast. Compare `torch.masked_select`.

    The number of hits is read from the device. Raises CaptureError in a captured step and TypeError for other masks than bool.

    >>> polyhal.masked_select(polyhal.tensor([1, 2]), polyhal.tensor([False, True])).tolist()
    [2]
    """
    shape = broadcast_shapes(x.shape, _mask_of("masked_select", mask).shape)
    positions = hit_positions("masked_select", broadcast_to(mask, shape))
    return own(reshape(embedding(reshape(broadcast_to(x, shape), (-1, 1)), positions), (-1,)))


@composite()
def masked_scatter(x: TensorLike, mask: TensorLike, source: TensorLike) -> Any:
    """`x` with the elements where `mask` is true replaced by the first ones of `source`, in row-major order.

    `x` and `mask` are broadcast. Compare `torch.masked_scatter`. Raises TypeError for other masks than bool, and where a source
    is too short, IndexError on CPUs and in debug mode (`polyhal.debug`). With an empty source, waits for the device, and raises
    ShapeError for a hit.
    """
    found = values_by_rank("masked_scatter", x, mask, source)
    return _with_no_hit(x, mask, source) if found is None else selection.where(mask, found, x)


def values_by_rank(name: str, x: TensorLike, mask: TensorLike, source: TensorLike) -> Any:
    """Return for each element of `x` and `mask`, broadcast, the element of `source` that replaces it if it is a hit.

    None if there is no hit for certain: an empty mask, or an empty source.
    """
    shape = broadcast_shapes(x.shape, _mask_of(name, mask).shape)
    if not math.prod(shape):
        return None
    if source.dtype is not x.dtype:
        raise TypeError(message(name, f"the source is {source.dtype.name}", expected=x.dtype.name))
    mask = broadcast_to(mask, shape)
    if not source.size:
        if hit_positions(name, mask).size:
            raise ShapeError(message(name, "the source is empty", expected="an element for each hit"))
        return None
    ranks = maximum(cumsum(reshape(mask, (-1,)), 0) - 1, 0)
    return reshape(embedding(reshape(source, (-1, 1)), ranks), shape)


def _with_no_hit(x: TensorLike, mask: TensorLike, source: TensorLike) -> Any:
    """Return a copy of `x`, broadcast, that depends on the source on the tape, with gradients of zeros."""
    x = broadcast_to(x, broadcast_shapes(x.shape, mask.shape))
    if source.dtype is not x.dtype or x.dtype.kind != "float":
        return copy(x)
    return selection.where(mask, sum_(source), x)
