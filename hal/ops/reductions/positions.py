"""argmax and argmin: the position of the first extremum along one axis or in the whole tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import normalize_axes
from polyhal.hal.ops.declare import OpFunction, Sample, Tolerance
from polyhal.hal.ops.layout.creation import arange
from polyhal.hal.ops.layout.views import permute, reshape
from polyhal.hal.ops.pointwise.logic import equal, logical_or, not_equal
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.reductions.extrema import max_, min_
from polyhal.hal.ops.reductions.reduction import Axis, element_count, reduced_shape, reduction
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _samples(rng: np.random.Generator) -> list[Sample]:
    cases: list[tuple[tuple[int, ...], Axis]] = [
        ((7,), None),
        ((3, 5), 0),
        ((3, 5), -1),
        ((2, 3, 4), 1),
        ((4, 300), 1),
        ((), None),
    ]
    integers = [
        Sample((rng.integers(-9, 9, s).astype(np.float64),), {"axis": a, "keepdims": k})
        for s, a in cases
        for k in (False, True)
    ]
    ties = rng.integers(-5, 5, (2, 20_000)).astype(np.float64)
    poisoned = ties[:, :300].copy()
    poisoned.reshape(-1)[[200, 300]] = np.nan
    return [
        *integers,
        Sample((np.array([1.0, np.nan, np.inf, np.nan]),), {"axis": 0}, special=True),
        Sample((ties,), {"axis": 1}, note="long rows with equal elements"),
        Sample((poisoned,), {"axis": 0}, special=True, note="NaN among equal elements"),
    ]


def _decompose(extremum: OpFunction) -> Callable[..., Any]:
    """The first position of the extremum (or of a NaN), as the largest reversed position among the matches."""

    def decompose(x: TensorLike, *, axis: Any, keepdims: bool) -> Any:
        axes = normalize_axes(axis, x.ndim)
        n = element_count(x.spec, axes)
        matches = logical_or(equal(x, extremum(x, axes, True)), not_equal(x, x))
        rows = permute(matches, (*(i for i in range(x.ndim) if i not in axes), *axes))
        outer = reduced_shape(x.shape, axes, False)
        reversed_position = arange(n - 1, -1, -1, dtypes.int32)
        first = max_(where(reshape(rows, (*outer, n)), reversed_position, -1), -1, False)
        return reshape((n - 1) - first, reduced_shape(x.shape, axes, keepdims)).cast(dtype=dtypes.int64)

    return decompose


def _reference(function: Callable[..., Any]) -> Callable[..., Any]:
    def reference(x: Array, *, axis: tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
        axis = None if axis is None or (isinstance(axis, tuple) and len(axis) == np.ndim(x)) else axis
        return function(x, axis=axis[0] if isinstance(axis, tuple) else axis, keepdims=keepdims)

    return reference


def _declare(name: str, function: Callable[..., Any], extremum: OpFunction, doc: str) -> OpFunction:
    return reduction(
        name,
        _reference(function),
        doc,
        result=lambda d: dtypes.int64,
        one_axis=True,
        decompose=_decompose(extremum),
        widen=False,
        samples=_samples,
        tolerance=Tolerance(0.0),
    )


argmax = _declare(
    "argmax", np.argmax, max_, "Position of the first largest element over one axis or all; a NaN counts as largest."
)
argmin = _declare(
    "argmin", np.argmin, min_, "Position of the first smallest element over one axis or all; a NaN counts as smallest."
)
