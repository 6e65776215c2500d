"""`put_maxima`: the results of max pooling back at their positions, for `max_unpool`."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import Decompose, ErrorSample, Output, Sample, Specs, Tolerance, declare
from polyhal.hal.ops.indexing.along_axis import scatter_along_axis, take_along_axis
from polyhal.hal.ops.indexing.rows import tensor_and_index
from polyhal.hal.ops.pointwise.logic import equal, greater
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _put_maxima(x: Array, index: Array, *, length: int) -> Any:
    """Zeros (planes, length) with `x` (planes, n) at the positions `index`, where equal positions hold equal values."""
    x, index = np.asarray(x), np.asarray(index)
    out = np.zeros((len(x), length), x.dtype)
    np.put_along_axis(out, index, x, 1)
    return out


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    x, index = tensor_and_index(specs)
    if x.ndim != 2 or index.shape != x.shape:
        raise ValueError(f"x {x.shape} and index {index.shape}; expected two equal shapes (planes, n)")
    return [(x.dtype, (x.shape[0], params["length"]))]


def _decomposed(x: TensorLike, index: TensorLike, *, length: int) -> Any:
    """The sum of the values at each position, divided by their number."""
    ones = where(equal(x, x), 1.0, 1.0).cast(dtype=x.dtype)
    count = scatter_along_axis(ones, index, None, 1, length)
    total = scatter_along_axis(x, index, None, 1, length)
    return where(greater(count, 1.0), total / count, total)


put_maxima = declare(
    _put_maxima,
    name="put_maxima",
    family="pooling",
    infer=_infer,
    lowering=Decompose(_decomposed),
    # As in PyTorch, every value of an overlap receives the whole gradient.
    gradient=lambda g, index: (take_along_axis(g, index, 1), None),
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (2, 3)), np.array([[4, 0, 2], [1, 3, 0]])), {"length": 5}),
        Sample((np.array([[2.0, 2.0, 2.0]]), np.array([[3, 1, 1]])), {"length": 4}, special=True, note="an overlap"),
    ],
    errors=[
        ErrorSample((np.zeros((2, 3)), np.zeros((2, 2), int)), {"length": 4}, ValueError, "two equal shapes"),
    ],
    dtypes=dtypes.FLOATS,
    public=False,
    tolerance=Tolerance(3.0),
)
