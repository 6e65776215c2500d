"""Distinct elements. The length of the result is read from the device once, so none can be captured."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch.host_work import work_on_host
from polyhal.hal.layout import normalize_axis
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.indexing.along_axis import take_along_axis
from polyhal.hal.ops.indexing.rows import take
from polyhal.hal.ops.layout.axes import moveaxis
from polyhal.hal.ops.layout.creation import arange, full
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.pointwise.logic import not_equal
from polyhal.hal.ops.reductions.extrema import any_
from polyhal.hal.ops.reductions.scan import cumsum
from polyhal.hal.ops.reductions.search import searchsorted
from polyhal.hal.ops.reductions.sort import argsort, sort_pairs
from polyhal.hal.ops.tensor_like import TensorLike


def _require_execution(op: str) -> None:
    dispatch.require_execution(
        op, "the number of distinct elements is only being recorded", fix="call it outside the captured step"
    )


def runs(rows: TensorLike) -> tuple[Any, Any, int]:
    """Runs of equal consecutive rows (n, width): the number of each row's run, where each run starts, and how many."""
    n = rows.shape[0]
    if not n:
        nothing = full((0,), 0, dtypes.int64, device=rows.device)
        return nothing, nothing, 0
    width = rows.shape[1]
    later, earlier = (slice_(rows, (at, 0), (n - 1, width), (1, 1)) for at in (1, 0))
    changes = any_(not_equal(later, earlier), 1)
    run = cumsum(concat((full((1,), False, dtypes.bool_, device=rows.device), changes), 0), 0)
    count = int(slice_(run, (n - 1,), (1,), (1,)).item()) + 1
    return run, searchsorted(run, arange(0, count, 1, dtypes.int64, device=rows.device)), count


def run_lengths(starts: TensorLike, total: int) -> Any:
    """The lengths of runs that start there."""
    end = full((1,), total, dtypes.int64, device=starts.device)
    ends = concat((slice_(starts, (1,), (starts.shape[0] - 1,), (1,)), end), 0) if starts.shape[0] else starts
    return ends - starts


def _chosen(values: TensorLike, inverse: Any, counts: Any, return_inverse: bool, return_counts: bool) -> Any:
    results = (values, *(inverse,) * return_inverse, *(counts,) * return_counts)
    return results if len(results) > 1 else values


@composite()
def unique(
    x: TensorLike,
    sorted: bool = True,  # noqa: A002
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct elements of `x`, or slices along `dim`, always sorted. Each NaN counts as another.

    With `return_inverse` also the position (int64) of each element among them, with `return_counts` how often each occurs
    (int64). Raises CaptureError in a captured step.

    >>> polyhal.unique(polyhal.tensor([3, 1, 3])).tolist()
    [1, 3]
    """
    _require_execution("unique")
    if dim is not None:
        return _unique_slices(x, dim, return_inverse, return_counts)
    values, order = sort_pairs(reshape(x, (-1,)), 0, False)
    run, starts, _ = runs(reshape(values, (-1, 1)))
    inverse = reshape(take_along_axis(run, argsort(order, 0), 0), x.shape) if return_inverse else None
    return _chosen(
        take_along_axis(values, starts, 0), inverse, run_lengths(starts, values.shape[0]), return_inverse, return_counts
    )


def _unique_slices(x: Any, dim: int, return_inverse: bool, return_counts: bool) -> Any:
    """Slices are compared on the host: the rounds of a sort by many keys would take longer than the way there."""
    axis = normalize_axis(dim, x.ndim)
    if not isinstance(x.ref.handle, np.ndarray):  # arrays of NumPy are not copied
        work_on_host("unique", x.device, x.size * x.dtype.itemsize, "NumPy sorts slices by many keys at once")
    front = np.moveaxis(x.detach().numpy(), axis, 0)
    rows = front.reshape(len(front), math.prod(front.shape[1:]))
    found = np.unique(rows, axis=0, return_index=True, return_inverse=True, return_counts=True)
    index, inverse, counts = (
        dispatch.frontend.convert(np.asarray(v, np.int64).reshape(-1), x.device) for v in found[1:]
    )
    return _chosen(take(x, index, axis), inverse, counts, return_inverse, return_counts)


@composite()
def unique_consecutive(
    x: TensorLike, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """`x`, flat or along `dim`, with one of each run of equal elements or slices; see `unique` for the other results.

    Raises CaptureError in a captured step.
    """
    _require_execution("unique_consecutive")
    axis = None if dim is None else normalize_axis(dim, x.ndim)
    front = reshape(x, (-1,)) if axis is None else moveaxis(x, axis, 0)
    length = front.shape[0]
    run, starts, _ = runs(reshape(front, (length, front.size // max(length, 1))))
    values = take_along_axis(front, starts, 0) if axis is None else take(x, starts, axis)
    inverse = reshape(run, x.shape) if axis is None else run
    return _chosen(values, inverse, run_lengths(starts, length), return_inverse, return_counts)
