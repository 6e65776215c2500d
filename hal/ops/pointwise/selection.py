"""Elementwise selection: maximum, minimum, where and clip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyhal.hal.ops.declare import Names, OpFunction, Sample, Trait
from polyhal.hal.ops.pointwise.elementwise import elementwise
from polyhal.hal.ops.pointwise.logic import equal, greater, less, less_equal, logical_or, not_equal
from polyhal.hal.ops.pointwise.promotion import in_common_dtype
from polyhal.hal.ops.tensor_like import Array, TensorLike

maximum = elementwise(
    "maximum",
    np.maximum,
    "The larger of `x` and `y`; NaN if either is NaN.",
    gradient=lambda g, x, y: _extremum_gradient(g, x, y, less),
    traits=Trait.CHEAP | Trait.COMMUTATIVE | Trait.STORES_NUMBERS,
)
minimum = elementwise(
    "minimum",
    np.minimum,
    "The smaller of `x` and `y`; NaN if either is NaN.",
    decompose=lambda x, y: in_common_dtype(lambda a, b: where(logical_or(less(a, b), not_equal(a, a)), a, b), x, y),
    gradient=lambda g, x, y: _extremum_gradient(g, x, y, lambda a, b: less(b, a)),
    traits=Trait.CHEAP | Trait.COMMUTATIVE | Trait.STORES_NUMBERS,
)


def _extremum_gradient(g: TensorLike, x: TensorLike, y: TensorLike | float, loses: Callable[..., Any]) -> Any:
    """Return both gradients. As in PyTorch, equal elements have half of `g` each, and a NaN and its partner all of it."""
    won = where(equal(x, y), g * 0.5, g)
    return where(loses(x, y), 0.0, won), where(loses(y, x), 0.0, won)


where: OpFunction = elementwise(
    "where",
    np.where,
    "`x` where `cond` is true, else `y`.",
    inputs=("cond", "x", "y"),
    gradient=(None, lambda g, cond: where(cond, g, 0), lambda g, cond: where(cond, 0, g)),
    traits=Trait.CHEAP | Trait.STORES_NUMBERS,
    names=Names(method=False),
)


def constant_in(x: TensorLike, value: TensorLike | float) -> Any:
    """Return `value` as a constant function of `x`, whose gradient is 0 for any incoming gradient."""
    return where(False, x, value)


def _clip(x: Array, min: int | None = None, max: int | None = None) -> Any:  # noqa: A002
    if min is not None:
        x = np.maximum(x, min)
    return x if max is None else np.minimum(x, max)


def _clip_decomposed(x: TensorLike, low: TensorLike | None, high: TensorLike | None) -> Any:
    if low is not None:
        x = maximum(x, low)
    return x + 0 if low is None and high is None else x if high is None else minimum(x, high)


def _clip_gradient(
    g: TensorLike,
    x: TensorLike,
    min: TensorLike | float | None,  # noqa: A002
    max: TensorLike | float | None,  # noqa: A002
    needs: tuple[bool, ...],
) -> Any:
    """`max` is applied last: it receives the gradient where the bounds are in the wrong order."""
    dx = g
    dmin = dmax = None
    if max is not None:
        above = greater(x, max)
        if min is not None and (needs[1] or needs[2]):
            above = logical_or(above, less(max, min))
        dx, dmax = where(less_equal(x, max), dx, 0), where(above, g, 0)
    if min is not None:
        dmin = where(less(x, min), g if max is None else where(above, 0, g), 0) if needs[1] else None
        dx = where(less_equal(min, x), dx, 0)
    return dx, dmin, dmax


clip = elementwise(
    "clip",
    _clip,
    "`x` limited to [`min`, `max`]; either bound may be left out.",
    decompose=_clip_decomposed,
    gradient=_clip_gradient,
    promotion="numeric",
    samples=lambda rng: [
        Sample((rng.uniform(-4, 4, (33,)), -1.0, 1.0)),
        Sample((rng.uniform(-4, 4, (3, 5)), None, 1.0)),
        Sample((rng.uniform(-4, 4, (3, 5)), rng.uniform(-2, -1, (5,)), None)),
        Sample((np.array([np.nan, np.inf, -np.inf, 0.0]), -1.0, 1.0), special=True),
    ],
    traits=Trait.CHEAP | Trait.STORES_NUMBERS,
    names=Names("clamp", in_place=True),
)
