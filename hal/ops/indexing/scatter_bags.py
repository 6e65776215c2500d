"""The transpose of `sum_bags`: a row per bag, added to all rows of a table that the bag names."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.ops.declare import (
    Decompose,
    ErrorSample,
    OpFunction,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    declare,
    tensor_at,
)
from polyhal.hal.ops.indexing.rows import embedding, scatter_rows, tensor_and_index
from polyhal.hal.ops.layout.creation import arange, full
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.views import broadcast_to, reshape
from polyhal.hal.ops.pointwise.logic import less
from polyhal.hal.ops.pointwise.selection import minimum, where
from polyhal.hal.ops.reductions.search import searchsorted
from polyhal.hal.ops.tensor_like import Array, TensorLike


def bag_count(count: int, starts: Spec | None, length: int, open_end: bool) -> int:
    """The number of bags."""
    if starts is None:
        return count // length
    return starts.shape[0] - (not open_end)


def bag_numbers(count: int, starts: Any, bags: int) -> Any:
    """The bag of each of `count` elements (int64); the number of bags for those in none."""
    at = arange(0, count, 1, dtypes.int64)
    wide = starts if starts.dtype is dtypes.int64 else starts.cast(dtype=dtypes.int64)
    bag = searchsorted(wide, at, right=True) - 1
    return where(less(bag, 0), bags, minimum(bag, bags))


def bag_rows(src: TensorLike, starts: TensorLike | None, count: int, length: int) -> Any:
    """The row of `src` (B, W) of the bag of each of `count` elements; zeros for those in none."""
    bags, width = src.shape
    if starts is None:
        return reshape(broadcast_to(reshape(src, (bags, 1, width)), (bags, length, width)), (count, width))
    padded = concat([src, full((1, width), 0.0, src.dtype)], 0)
    return embedding(padded, bag_numbers(count, starts, bags))


def _scatter_bags(
    src: Array,
    index: Array,
    starts: Array | None = None,
    scales: Array | None = None,
    *,
    rows: int = 0,
    length: int = 0,
    open_end: bool = False,
) -> Any:
    """A table of `rows` rows in which row b of `src` (B, W) is added to all rows that bag b of `index` (N,) names.

    Bags and `scales` are those of `sum_bags`, whose gradient this is. Numbers outside the table are skipped.
    """
    src, index = np.asarray(src), np.asarray(index)
    firsts = np.arange(0, len(index) + 1, length) if starts is None else np.asarray(starts)
    firsts = np.append(firsts, len(index)) if starts is not None and open_end else firsts
    out = np.zeros((rows, src.shape[1]), src.dtype)
    for b, (first, end) in enumerate(itertools.pairwise(firsts)):
        for i in range(first, end):
            if 0 <= index[i] < rows:
                out[index[i]] += src[b] if scales is None else src[b] * np.asarray(scales)[i]
    return out


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    (src, index), starts = tensor_and_index(specs), specs[2]
    bags = bag_count(
        index.size, starts if isinstance(starts, Spec) else None, params["length"] or 1, params["open_end"]
    )
    if src.ndim != 2 or index.ndim != 1 or src.shape[0] != bags:
        raise ValueError(f"src {src.shape} and index {index.shape} in {bags} bags; expected (bags, width) and (n,)")
    return [(src.dtype, (params["rows"], src.shape[1]))]


def _decomposed(
    src: TensorLike,
    index: TensorLike,
    starts: TensorLike | None,
    scales: TensorLike | None,
    *,
    rows: int,
    length: int,
    open_end: bool,
) -> Any:
    source = bag_rows(src, starts, index.shape[0], length)
    scaled = source if scales is None else source * reshape(scales, (-1, 1))
    return scatter_rows(scaled, index, rows)


def _samples(rng: np.random.Generator) -> list[Sample]:
    starts = np.array([0, 2, 2, 5])

    def rows_of(bags: int, width: int) -> Any:
        return rng.uniform(-1, 1, (bags, width))

    return [
        Sample((rows_of(3, 3), rng.integers(0, 5, 6), None, None), {"rows": 5, "length": 2}),
        Sample((rows_of(4, 64), rng.integers(0, 6, 9), starts, None), {"rows": 6, "open_end": True}),
        Sample((rows_of(3, 8), rng.integers(0, 4, 7), starts, rng.uniform(-1, 1, 7)), {"rows": 4}),
        Sample((rows_of(1, 5), rng.integers(0, 3, 4), None, rng.uniform(-1, 1, 4)), {"rows": 3, "length": 4}),
    ]


def _terms(specs: Specs, params: Params) -> int:
    """All bags may name one row; a gradient of a scale adds up a row."""
    return max(tensor_at(specs, 1).size, tensor_at(specs, 0).shape[1], 1)


scatter_bags: OpFunction = declare(
    _scatter_bags,
    name="scatter_bags",
    family="indexing",
    infer=_infer,
    lowering=Decompose(_decomposed),
    settings=("deterministic",),
    public=False,
    samples=_samples,
    errors=[
        ErrorSample(
            (np.zeros((2, 3)), np.zeros(5, np.int64), None, None), {"rows": 4, "length": 5}, ValueError, "in 1 bags"
        )
    ],
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(2.0, floor=1.0, terms=_terms),
)
