"""Largest and smallest elements, and `any` and `all`, which are extrema of bools."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.ops.declare import Tolerance, Trait
from polyhal.hal.ops.pointwise.logic import bitwise_invert, equal, logical_not, not_equal
from polyhal.hal.ops.reductions.reduction import reduction, unreduced
from polyhal.hal.ops.reductions.shares import shared
from polyhal.hal.ops.tensor_like import TensorLike


def _extremum_gradient(
    g: TensorLike, x: TensorLike, out: TensorLike, x_spec: Spec, *, axis: int | tuple[int, ...] | None, keepdims: bool
) -> Any:
    """Equal extrema share the gradient equally."""
    return shared(unreduced(g, x_spec, axis, keepdims), equal(x, unreduced(out, x_spec, axis, keepdims)), axis)


max_ = reduction(
    "max",
    lambda x, *, axis=None, keepdims=False: np.max(x, axis=axis, keepdims=keepdims),
    "Largest element over `axis`; NaN if any is NaN.",
    result=lambda d: d,
    core=True,
    gradient=_extremum_gradient,
    dtypes=dtypes.ALL,
    tolerance=Tolerance(0.0),
    traits=Trait.FUSIBLE_REDUCTION,
)


def _min(x: TensorLike, *, axis: Any, keepdims: bool) -> Any:
    if x.dtype.kind == "float":
        return -max_(-x, axis, keepdims)
    # Flipping all bits reverses the order of integers of either sign, without overflow.
    return bitwise_invert(max_(bitwise_invert(x), axis, keepdims))


min_ = reduction(
    "min",
    lambda x, *, axis=None, keepdims=False: np.min(x, axis=axis, keepdims=keepdims),
    "Smallest element over `axis`; NaN if any is NaN.",
    result=lambda d: d,
    core=True,
    decompose=_min,
    gradient=_extremum_gradient,
    dtypes=dtypes.ALL,
    tolerance=Tolerance(0.0),
    traits=Trait.FUSIBLE_REDUCTION,
)

any_ = reduction(
    "any",
    lambda x, *, axis=None, keepdims=False: np.any(x, axis=axis, keepdims=keepdims),
    "True where any element is non-zero.",
    result=lambda d: dtypes.bool_,
    empty=True,
    core=True,
    decompose=lambda x, *, axis, keepdims: max_(not_equal(x, 0), axis, keepdims),
    dtypes=(dtypes.bool_, dtypes.float32, dtypes.int32),
)
all_ = reduction(
    "all",
    lambda x, *, axis=None, keepdims=False: np.all(x, axis=axis, keepdims=keepdims),
    "True where every element is non-zero.",
    result=lambda d: dtypes.bool_,
    empty=True,
    core=True,
    decompose=lambda x, *, axis, keepdims: logical_not(max_(equal(x, 0), axis, keepdims)),
    dtypes=(dtypes.bool_, dtypes.float32, dtypes.int32),
)
