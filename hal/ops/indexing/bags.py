"""Sums of rows of a table that bags of numbers name, as in `embedding_bag`, without a copy of the rows."""

from __future__ import annotations

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
    declare,
    reads,
    tensor_at,
)
from polyhal.hal.ops.indexing.rows import embedding, scatter_rows, tensor_and_index
from polyhal.hal.ops.indexing.scatter_bags import bag_count, bag_numbers, bag_rows, scatter_bags
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.reductions.sums import sum_
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _sum_bags(
    weight: Array,
    index: Array,
    starts: Array | None = None,
    scales: Array | None = None,
    *,
    length: int = 0,
    open_end: bool = False,
) -> Any:
    """For each bag the sum of the rows of `weight` (R, W) that its part of `index` (N,) names: (B, W).

    Bags have `length` elements each, or begin at `starts`, where each ends as the next begins: the last with `index` if
    `open_end`, else at the last of `starts`, which must not fall. `scales` (N,) multiply the rows. Numbers outside the table
    add nothing, as in `embedding`.
    """
    rows = np.asarray(weight)[np.clip(index, 0, max(len(weight) - 1, 0))] if len(weight) else np.zeros((len(index), 0))
    used = (np.asarray(index) >= 0) & (np.asarray(index) < len(weight))
    rows = np.where(used[:, None], rows, 0)
    rows = rows if scales is None else rows * np.asarray(scales)[:, None]
    if starts is None:
        return rows.reshape(-1, length, weight.shape[1]).sum(1)
    ends = np.append(starts[1:], len(index)) if open_end else starts[1:]
    return np.array([rows[a:b].sum(0) for a, b in zip(starts, ends, strict=False)]).reshape(-1, weight.shape[1])


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    (weight, index), starts, scales = tensor_and_index(specs), specs[2], specs[3]
    if weight.ndim != 2 or index.ndim != 1:
        raise ValueError(f"weight {weight.shape} and index {index.shape}; expected (rows, width) and (n,)")
    for name, spec in (("scales", scales),):
        if isinstance(spec, Spec) and (spec.shape != index.shape or spec.dtype is not weight.dtype):
            raise ValueError(f"{name} are {spec}; expected {weight.dtype.name}{index.shape}")
    if isinstance(starts, Spec):
        if not starts.dtype.is_integral or starts.ndim != 1 or not starts.shape[0]:
            raise ValueError(f"starts are {starts}; expected a vector of integers")
    elif params["length"] < 1 or index.size % params["length"]:
        raise ValueError(f"{index.size} numbers in bags of {params['length']}; expected starts, or bags of one length")
    bags = bag_count(index.size, starts if isinstance(starts, Spec) else None, params["length"], params["open_end"])
    return [(weight.dtype, (bags, weight.shape[1]))]


def _decomposed(
    weight: TensorLike,
    index: TensorLike,
    starts: TensorLike | None,
    scales: TensorLike | None,
    *,
    length: int,
    open_end: bool,
) -> Any:
    rows = embedding(weight, index)
    rows = rows if scales is None else rows * reshape(scales, (-1, 1))
    count, width = rows.shape
    if starts is None:
        return sum_(reshape(rows, (count // length, length, width)), 1)
    bags = bag_count(count, starts.spec, length, open_end)
    # A row past the last bag collects the elements that are in none.
    return slice_(scatter_rows(rows, bag_numbers(count, starts, bags), bags + 1), (0, 0), (bags, width), (1, 1))


@reads(weight="index starts scales", scales="weight index starts")
def _rule(
    g: TensorLike,
    weight: TensorLike | None,
    index: TensorLike,
    starts: TensorLike | None,
    scales: TensorLike | None,
    weight_spec: Spec,
    needs: tuple[bool, ...],
    *,
    length: int,
    open_end: bool,
) -> Any:
    d_weight = d_scales = None
    if needs[0]:
        d_weight = scatter_bags(g, index, starts, scales, weight_spec.shape[0], length, open_end)
    if len(needs) > 3 and needs[3]:
        rows = bag_rows(g, starts, index.shape[0], length)
        d_scales = sum_(rows * embedding(weight, index), 1)
    return d_weight, None, None, d_scales


def _samples(rng: np.random.Generator) -> list[Sample]:
    def table(rows: int, width: int) -> Any:
        return rng.uniform(-1, 1, (rows, width))

    starts = np.array([0, 2, 2, 5])
    return [
        Sample((table(5, 3), rng.integers(0, 5, 6), None, None), {"length": 2, "open_end": False}),
        Sample((table(6, 64), rng.integers(0, 6, 9), starts, None), {"length": 0, "open_end": True}),
        Sample((table(4, 8), rng.integers(0, 4, 7), starts, rng.uniform(-1, 1, 7)), {"length": 0, "open_end": False}),
        Sample((table(3, 5), rng.integers(0, 3, 4), None, rng.uniform(-1, 1, 4)), {"length": 4, "open_end": False}),
    ]


def _terms(specs: Specs, params: Params) -> int:
    """A gradient of a row may add as many terms as there are numbers, and one of a scale as many as a row is wide."""
    weight, index = tensor_at(specs, 0), tensor_at(specs, 1)
    return max(index.size, weight.shape[1], 1)


sum_bags: OpFunction = declare(
    _sum_bags,
    name="sum_bags",
    family="indexing",
    infer=_infer,
    lowering=Decompose(_decomposed),
    gradient=_rule,
    index_range=lambda specs, params: IndexRange(1, 0, tensor_at(specs, 0).shape[0]),
    public=False,
    samples=_samples,
    errors=[
        ErrorSample(
            (np.zeros((2, 3)), np.zeros(5, np.int64), None, None),
            {"length": 2, "open_end": False},
            ValueError,
            "bags of one length",
        )
    ],
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(2.0, floor=1.0, terms=_terms),
)
