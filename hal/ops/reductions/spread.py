"""Variance and standard deviation over any axes, with PyTorch's pairs `std_mean` and `var_mean`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.declare import Autocast, Sample, Tolerance
from polyhal.hal.ops.pointwise.exponential import sqrt
from polyhal.hal.ops.pointwise.logic import equal
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.reductions.reduction import Axis, element_count, reduced_terms, reduction, unreduced
from polyhal.hal.ops.reductions.sums import in_float, mean, sum_, wide_terms
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _var(x: TensorLike, *, axis: Any, keepdims: bool, correction: float) -> Any:
    x = in_float(x)
    centred = x - mean(x, axis, True)
    divisor = element_count(x.spec, axis) - correction
    return sum_(centred * centred, axis, keepdims) * (1.0 / divisor if divisor > 0 else math.inf)


def _var_gradient(
    g: TensorLike, x: TensorLike, x_spec: Spec, *, axis: int | tuple[int, ...] | None, keepdims: bool, correction: float
) -> Any:
    divisor = element_count(x_spec, axis) - correction
    scale = 2.0 / divisor if divisor > 0 else math.inf
    return (unreduced(g, x_spec, axis, keepdims) * scale) * (x - mean(x, axis, True))


def _np_var(x: Array, *, axis: tuple[int, ...] | None = None, keepdims: bool = False, correction: float = 0) -> Any:
    return np.var(x, axis=axis, keepdims=keepdims, ddof=correction, **wide_terms(x, axis))


def _var_samples(rng: np.random.Generator) -> list[Sample]:
    cases: list[tuple[tuple[int, ...], Axis, float]] = [
        ((7,), None, 0),
        ((3, 5), 0, 1),
        ((3, 5), -1, 0),
        ((2, 3, 4), (0, 2), 1),
        ((4, 300), 1, 0),
    ]
    return [
        Sample((rng.uniform(-2, 2, s) + 1.0,), {"axis": a, "keepdims": bool(c), "correction": c}) for s, a, c in cases
    ]


variance = reduction(
    "var",
    _np_var,
    "Variance over `axis`, divided by n - `correction`.",
    result=dtypes.to_float,
    empty=True,
    decompose=_var,
    gradient=_var_gradient,
    samples=_var_samples,
    # The floor is for equal elements, whose variance is 0 but for the square of the mean's rounding.
    tolerance=Tolerance(8.0, floor=1e-3, terms=reduced_terms),
    autocast=Autocast.FLOAT32,
)


def _std_gradient(
    g: TensorLike,
    x: TensorLike,
    out: TensorLike,
    x_spec: Spec,
    *,
    axis: int | tuple[int, ...] | None,
    keepdims: bool,
    correction: float,
) -> Any:
    """0 where all elements are equal, as in PyTorch: the derivative does not exist there."""
    equals = equal(out, 0)
    scaled = where(equals, 0, g / where(equals, 1, out))
    return _var_gradient(scaled * 0.5, x, x_spec, axis=axis, keepdims=keepdims, correction=correction)


deviation = reduction(
    "std",
    lambda x, *, axis=None, keepdims=False, correction=0: np.sqrt(
        _np_var(x, axis=axis, keepdims=keepdims, correction=correction)
    ),
    "Standard deviation over `axis`, from the sum of squares divided by n - `correction`.",
    result=dtypes.to_float,
    empty=True,
    decompose=lambda x, **params: sqrt(_var(x, **params)),
    gradient=_std_gradient,
    samples=lambda rng: _var_samples(rng)[:4],
    # The deviation of equal elements up to 3 is the rounding of their mean: half a unit at 2 in the sum, half a unit in the
    # quotient. The correction for three elements makes 1.22 units of it, 4.9 units at 1/2.
    tolerance=Tolerance(8.0, floor=0.5, terms=reduced_terms),
    autocast=Autocast.FLOAT32,
)


def _correction(
    axis: Sequence[int] | int | None, unbiased: bool | None, correction: float | None, default: float
) -> tuple[Any, float]:
    """Axes and correction from PyTorch's arguments; `unbiased` may be passed in place of the axes."""
    if isinstance(axis, bool):
        axis, unbiased = None, axis
    if unbiased is not None and correction is not None:
        raise TypeError("unbiased and correction are two spellings of one argument; give one")
    if correction is None:
        correction = default if unbiased is None else float(unbiased)
    return axis, correction


@composite()
def var(
    x: TensorLike,
    axis: Any = None,
    unbiased: bool | None = None,
    keepdims: bool = False,
    *,
    correction: float | None = None,
) -> Any:
    """Variance over `axis`, divided by n - `correction`, which is 0 by default.

    `unbiased=True` is PyTorch's spelling of `correction=1`, by position too: `x.var(True)`, `x.var(0, True)`.

    >>> polyhal.var(polyhal.tensor([1.0, 2.0, 3.0])).item()
    0.6666666865348816
    """
    axes, correction = _correction(axis, unbiased, correction, 0)
    return variance(x, axes, keepdims, correction)


@composite()
def std(
    x: TensorLike,
    axis: int | Sequence[int] | None = None,
    unbiased: bool | None = None,
    keepdims: bool = False,
    *,
    correction: float | None = None,
) -> Any:
    """Standard deviation over `axis`, from the sum of squares divided by n - `correction`, which is 0 by default.

    `unbiased=True` is PyTorch's spelling of `correction=1`, by position too: `x.std(True)`, `x.std(0, True)`.

    >>> polyhal.std(polyhal.tensor([1.0, 2.0, 3.0])).item()
    0.8164966106414795
    """
    axes, correction = _correction(axis, unbiased, correction, 0)
    return deviation(x, axes, keepdims, correction)


def _all_if_none(dim: Sequence[int] | int | None) -> Any:
    return None if dim == () or dim == [] else dim


@composite(method=False)
def std_mean(
    x: TensorLike,
    dim: int | Sequence[int] | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Any, Any]:
    """Standard deviation and mean over `dim`, with PyTorch's arguments: `correction` is 1 by default."""
    axes, correction = _correction(dim, unbiased, correction, 1)
    axes = _all_if_none(axes)
    return deviation(x, axes, keepdim, correction), mean(x, axes, keepdim)


@composite(method=False)
def var_mean(
    x: TensorLike,
    dim: int | Sequence[int] | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Any, Any]:
    """Variance and mean over `dim`, with PyTorch's arguments: `correction` is 1 by default."""
    axes, correction = _correction(dim, unbiased, correction, 1)
    axes = _all_if_none(axes)
    return variance(x, axes, keepdim, correction), mean(x, axes, keepdim)
