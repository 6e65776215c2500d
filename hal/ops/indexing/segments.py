"""`segment_reduce`: reductions of consecutive slices along an axis, whose numbers are data."""

from __future__ import annotations

import math
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.dtypes import accumulator
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.layout import normalize_axis
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.indexing.brackets import basic_index
from polyhal.hal.ops.indexing.reduce_rows import NEUTRAL, reduce_rows
from polyhal.hal.ops.layout.creation import arange, full
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.pointwise.logic import equal
from polyhal.hal.ops.pointwise.selection import maximum, where
from polyhal.hal.ops.reductions.scan import cumsum
from polyhal.hal.ops.reductions.search import searchsorted

_REDUCTIONS = {"sum": "sum", "mean": "sum", "prod": "prod", "max": "amax", "min": "amin"}


@composite(method=False, aten=".default")
def segment_reduce(
    data: Any,
    reduce: str,
    *,
    lengths: Any = None,
    indices: Any = None,
    offsets: Any = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Any:
    """Reduce segments of `data` along `axis` by sum, mean, prod, max or min; one slice of the result for each.

    `lengths` (..., segments) holds the length of each, or `offsets` (..., segments + 1) where they begin and end; the axes
    before `axis` are those of `data`, and the segments of each must cover the axis. Empty ones give `initial`, or by default
    0, NaN, 1 and infinities. A mean adds `initial` to the sum. Compare `torch.segment_reduce`.

    Raises ShapeError and ValueError.
    """
    if reduce not in _REDUCTIONS:
        raise ValueError(message("segment_reduce", f"reduce is {reduce!r}", expected=", ".join(_REDUCTIONS)))
    if indices is not None or (lengths is None) == (offsets is None):
        raise ValueError(message("segment_reduce", "expected one of lengths and offsets"))
    axis = normalize_axis(axis, data.ndim)
    if lengths is None:
        front = (slice(None),) * (offsets.ndim - 1)
        lengths = basic_index(offsets, (*front, slice(1, None))) - basic_index(offsets, (*front, slice(0, -1)))
    if lengths.shape[:-1] != data.shape[:axis]:
        raise ShapeError(
            message("segment_reduce", f"lengths have shape {lengths.shape}", expected=f"{data.shape[:axis]}")
        )
    if reduce == "mean" and data.dtype.itemsize < 4:  # half precision can hold neither sums nor counts
        wide = segment_reduce(
            data.cast(dtype=accumulator(data.dtype)), reduce, lengths=lengths, axis=axis, initial=initial
        )
        return wide.cast(dtype=data.dtype)
    groups, segments = math.prod(data.shape[:axis]), lengths.shape[-1]
    length, rest = data.shape[axis], data.shape[axis + 1 :]
    counts = reshape(lengths, (groups * segments,))
    numbers = searchsorted(
        cumsum(counts, 0), arange(0, groups * length, 1, dtypes.int64, device=data.device), right=True
    )
    kind = _REDUCTIONS[reduce]
    start = NEUTRAL[kind] if initial is None else initial
    width = math.prod(rest)
    table = full((groups * segments, width), start, data.dtype, device=data.device)
    out = reduce_rows("segment_reduce", table, numbers, reshape(data, (groups * length, width)), kind)
    if reduce == "mean":
        size = reshape(counts, (-1, 1))
        out = out / maximum(size, 1).cast(dtype=data.dtype)
        out = where(equal(size, 0), float("nan"), out) if initial is None else out
    return reshape(out, (*data.shape[:axis], segments, *rest))
