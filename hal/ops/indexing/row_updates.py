"""Rows of a table replaced by, multiplied with or maximized over rows of another, by number; and numbers brought in range.

Sums have `scatter_rows`. The others sort the numbers first, because results must not depend on the order in which a device's
threads write: rows with one number are then adjacent, and a segmented scan combines them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.ops.declare import (
    Decompose,
    ErrorSample,
    IndexRange,
    OpFunction,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    Trait,
    declare,
    tensor_at,
)
from polyhal.hal.ops.indexing.add_rows import ERRORS, infer_update, reference, rows_or_zeros, update_samples
from polyhal.hal.ops.indexing.rows import embedding, index_size, scatter_rows
from polyhal.hal.ops.layout.creation import arange, full
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import contiguous, reshape
from polyhal.hal.ops.pointwise.logic import equal, greater_equal, less, logical_and, logical_or, not_equal
from polyhal.hal.ops.pointwise.selection import maximum, where
from polyhal.hal.ops.reductions.sort import sort_pairs
from polyhal.hal.ops.tensor_like import Array, TensorLike

# --- numbers --------------------------------------------------------------------------------------------------------


def _wrap_index(index: Array, *, length: int) -> Any:
    """`index` as int64 with negative numbers counted from the end of an axis of `length`; -1 for those out of range."""
    index = np.asarray(index).astype(np.int64)
    index = np.where(index < 0, index + length, index)
    return np.where((index >= 0) & (index < length), index, -1)


def _infer_wrap(specs: Specs, params: Params) -> list[Output]:
    index = tensor_at(specs, 0)
    if not index.dtype.is_integral:
        raise TypeError(f"the index is {index.dtype.name}; expected integers")
    return [(dtypes.int64, index.shape)]


def _wrap_decomposed(index: Any, *, length: int) -> Any:
    wide = index if index.dtype is dtypes.int64 else index.cast(dtype=dtypes.int64)
    wrapped = where(less(wide, 0), wide + length, wide)
    return where(logical_and(greater_equal(wrapped, 0), less(wrapped, length)), wrapped, -1)


wrap_index: OpFunction = declare(
    _wrap_index,
    name="wrap_index",
    family="indexing",
    infer=_infer_wrap,
    lowering=Decompose(_wrap_decomposed),
    gradient=lambda: None,
    index_range=lambda specs, params: IndexRange(0, -params["length"], params["length"]),
    samples=lambda rng: [Sample((rng.integers(-5, 5, (2, 7)),), {"length": 5}, differentiable=False)],
    errors=[ErrorSample((np.zeros(2),), {"length": 3}, ValueError, "expected integers")],
    public=False,
    tolerance=Tolerance(0.0),
)


# --- rows -----------------------------------------------------------------------------------------------------------


def _pieces(x: TensorLike, start: int, count: int) -> Any:
    """`count` consecutive slices along the first axis."""
    return slice_(x, (start, *(0,) * (x.ndim - 1)), (count, *x.shape[1:]), (1,) * x.ndim)


def _last_of_runs(numbers: TensorLike) -> Any:
    """Sorted numbers with -1 in place of all but the last of equal ones."""
    count = numbers.shape[0]
    ends = not_equal(_pieces(numbers, 1, count - 1), _pieces(numbers, 0, count - 1))
    return where(concat((ends, full((1,), True, dtypes.bool_)), 0), numbers, -1)


def _written_rows(src: TensorLike, targets: TensorLike, positions: TensorLike, rows: int) -> tuple[Any, Any]:
    """For each of `rows` rows, whether a target names it (rows, 1), and the row of `src` at that target's position."""
    writer = scatter_rows(reshape(positions + 1, (-1, 1)), targets, rows)
    return less(0, writer), embedding(src, maximum(reshape(writer, (rows,)) - 1, 0))


def _replace(x: TensorLike, index: TensorLike, src: TensorLike, *, distinct: bool) -> Any:
    count = index.shape[0]
    if 0 in (count, *x.shape):
        return contiguous(x)
    if distinct or count == 1:
        written, rows = _written_rows(src, index, arange(0, count, 1, dtypes.int64), x.shape[0])
        return where(written, rows, x)
    numbers, positions = sort_pairs(index, 0, False)
    return replace_rows(x, _last_of_runs(numbers), embedding(src, positions), True)


def _combine_rows(combine: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition for an associative operation: a prefix scan (Hillis and Steele, 1986) within runs of equal numbers."""

    def decompose(x: TensorLike, index: TensorLike, src: TensorLike) -> Any:
        count = index.shape[0]
        if 0 in (count, *x.shape):
            return contiguous(x)
        numbers, order = sort_pairs(index, 0, False)
        rows, distance = embedding(src, order), 1
        while distance < count:
            rest = count - distance
            later, earlier = _pieces(rows, distance, rest), _pieces(rows, 0, rest)
            same = equal(_pieces(numbers, distance, rest), _pieces(numbers, 0, rest))
            combined = where(reshape(same, (rest, 1)), combine(later, earlier), later)
            rows = concat((_pieces(rows, 0, distance), combined), 0)
            distance *= 2
        targets = _last_of_runs(numbers) if count > 1 else numbers
        return replace_rows(x, targets, combine(embedding(x, maximum(targets, 0)), rows), True)

    return decompose


def _replace_rows(x: Any, index: Array, src: Any, *, distinct: bool = False) -> Any:
    """`x` (rows, width) with row `index[i]` replaced by `src[i]`, the last one if several name it; others are skipped.

    `distinct` promises that no row is named twice.
    """
    out = np.array(x)
    put_rows(out, np.asarray(index), np.asarray(src))
    return out


def put_rows(out: np.ndarray, index: np.ndarray, src: np.ndarray) -> None:
    """Replace rows of `out` in its memory, in the order of the index; numbers outside are skipped."""
    inside = (index >= 0) & (index < len(out))
    if not inside.all():
        index, src = index[inside], src[inside]
    if len(np.unique(index)) == len(index):
        out[index] = src
    else:  # NumPy does not document which of several values is stored
        for i, row in zip(index.tolist(), src, strict=True):
            out[i] = row


def _replace_gradient(g: TensorLike, x_spec: Spec, index: TensorLike, *, distinct: bool) -> Any:
    """Rows that are replaced get nothing, and of the writers of one row the last receives everything."""
    count, (rows, width) = index.shape[0], x_spec.shape
    if not count or not rows:
        return g, None, full((count, width), 0, g.dtype)
    zeros = full((count, width), 0, g.dtype)
    for_src = rows_or_zeros(g, index)
    if not distinct:
        positions = reshape(arange(0, count, 1, dtypes.int64), (count, 1))
        writers = replace_rows(full((rows, 1), -1, dtypes.int64), index, positions)
        for_src = where(equal(rows_or_zeros(writers, index), positions), for_src, 0)
    return replace_rows(g, index, zeros, distinct=distinct), None, for_src


replace_rows: OpFunction = declare(
    _replace_rows,
    name="replace_rows",
    family="indexing",
    infer=infer_update,
    lowering=Decompose(_replace, widen=False),
    traits=Trait.INPLACE,
    gradient=_replace_gradient,
    samples=update_samples,
    errors=ERRORS,
    dtypes=dtypes.ALL,
    public=False,
    tolerance=Tolerance(0.0),
)


def _write_rows(x: Any, index: Any, src: Any) -> Any:
    """`x` (rows, width) with row `index[i]` replaced by `src[i]`, the last one if several name it. Negative numbers wrap."""
    return _replace_rows(x, _wrap_index(index, length=len(x)), src)


def _write_gradient(g: TensorLike, x_spec: Spec, index: TensorLike) -> Any:
    return _replace_gradient(g, x_spec, wrap_index(index, x_spec.shape[0]), distinct=False)


write_rows: OpFunction = declare(
    _write_rows,
    name="write_rows",
    family="indexing",
    infer=infer_update,
    lowering=Decompose(lambda x, index, src: replace_rows(x, wrap_index(index, x.shape[0]), src), widen=False),
    traits=Trait.INPLACE,
    gradient=_write_gradient,
    index_range=lambda specs, params: IndexRange(1, -tensor_at(specs, 0).shape[0], tensor_at(specs, 0).shape[0]),
    samples=lambda rng: update_samples(rng, -2),
    errors=ERRORS,
    dtypes=dtypes.ALL,
    public=False,
    tolerance=Tolerance(0.0),
)


def _multiply_rows(x: Array, index: Array, src: Array) -> Any:
    """`x` (rows, width) with row `index[i]` multiplied by `src[i]`; numbers outside are skipped."""
    return reference(np.multiply)(x, index, src)


multiply_rows: OpFunction = declare(
    _multiply_rows,
    name="multiply_rows",
    family="indexing",
    infer=infer_update,
    lowering=Decompose(_combine_rows(lambda a, b: a * b)),
    traits=Trait.INPLACE,
    samples=update_samples,
    errors=ERRORS,
    dtypes=(*dtypes.FLOATS, dtypes.int32, dtypes.int64),
    public=False,
    tolerance=Tolerance(1.0, terms=index_size),
)


def _maximum_rows(x: Array, index: Array, src: Array) -> Any:
    """`x` (rows, width) with row `index[i]` raised to at least `src[i]`; numbers outside are skipped, NaN wins."""
    return reference(np.maximum)(x, index, src)


def _maximum_gradient(g: TensorLike, x: TensorLike, index: TensorLike, src: TensorLike, out: TensorLike) -> Any:
    """Shared evenly by all elements that reach the maximum, as in PyTorch."""
    reached = _same(x, out)
    hits = _same(src, rows_or_zeros(out, index))
    ties = scatter_rows(hits.cast(dtype=g.dtype), index, x.shape[0]) + reached.cast(dtype=g.dtype)
    share = g / ties
    return where(reached, share, 0), None, where(hits, rows_or_zeros(share, index), 0)


def _same(a: TensorLike, b: TensorLike) -> Any:
    return logical_or(equal(a, b), logical_and(not_equal(a, a), not_equal(b, b)))


maximum_rows: OpFunction = declare(
    _maximum_rows,
    name="maximum_rows",
    family="indexing",
    infer=infer_update,
    lowering=Decompose(_combine_rows(maximum), widen=False),
    traits=Trait.INPLACE,
    gradient=_maximum_gradient,
    samples=update_samples,
    errors=ERRORS,
    dtypes=(*dtypes.FLOATS, dtypes.int32, dtypes.int64),
    public=False,
    tolerance=Tolerance(0.0),
)
