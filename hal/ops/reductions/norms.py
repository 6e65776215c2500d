"""p-norms of vectors, and functions of them: distances of tensors and `renorm`.

Gradients follow PyTorch: 0 where the norm has no derivative, and extrema share theirs equally.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.declare import Autocast, OpFunction, Sample, Tolerance
from polyhal.hal.ops.pointwise.arithmetic import abs_, sign, square
from polyhal.hal.ops.pointwise.constant import zeros
from polyhal.hal.ops.pointwise.exponential import pow_, sqrt
from polyhal.hal.ops.pointwise.logic import equal, greater, logical_or, not_equal
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.reductions.extrema import max_, min_
from polyhal.hal.ops.reductions.reduction import Axis, reduced_terms, reduction, unreduced
from polyhal.hal.ops.reductions.shares import shared
from polyhal.hal.ops.reductions.sums import in_float, sum_
from polyhal.hal.ops.tensor_like import Array, TensorLike

_RENORM_EPS = 1e-7
"""PyTorch's addend to a norm before the division by it."""


def _np_vector_norm(x: Array, *, axis: tuple[int, ...] | None = None, keepdims: bool = False, ord: float = 2.0) -> Any:  # noqa: A002
    x = np.abs(np.asarray(x, np.float64) if np.asarray(x).dtype.kind != "f" else x)
    if ord == 0:
        return np.sum(x != 0, axis=axis, keepdims=keepdims).astype(x.dtype)
    if math.isinf(ord):
        return (np.max if ord > 0 else np.min)(x, axis=axis, keepdims=keepdims)
    return np.sum(x**ord, axis=axis, keepdims=keepdims) ** (1 / ord)


def _vector_norm(x: TensorLike, *, axis: tuple[int, ...], keepdims: bool, ord: float) -> Any:  # noqa: A002
    x = in_float(x)
    if ord == 2:
        return sqrt(sum_(square(x), axis, keepdims))
    if ord == 0:
        return sum_(not_equal(x, 0).cast(dtype=x.dtype), axis, keepdims)
    if math.isinf(ord):
        return (max_ if ord > 0 else min_)(abs_(x), axis, keepdims)
    if ord == 1:
        return sum_(abs_(x), axis, keepdims)
    return pow_(sum_(pow_(abs_(x), ord), axis, keepdims), 1 / ord)


def vector_norm_gradient(
    g: TensorLike,
    x: TensorLike,
    out: TensorLike,
    x_spec: Spec,
    *,
    axis: Axis,
    keepdims: bool,
    ord: float,  # noqa: A002
) -> Any:
    """Gradient rule of `vector_norm` and of the norms of differences."""
    g, out = unreduced(g, x_spec, axis, keepdims), unreduced(out, x_spec, axis, keepdims)
    if ord == 0:
        return zeros(x_spec)
    if ord == 1:
        return sign(x) * g
    if math.isinf(ord):
        size = abs_(x)
        return sign(x) * shared(g, logical_or(equal(size, out), not_equal(size, size)), axis)
    flat = equal(out, 0)
    if ord == 2:
        return x * where(flat, 0, g / where(flat, 1, out))
    flat = logical_or(flat, equal(x, 0))
    # The quotient of x and the norm neither overflows nor vanishes where their powers do.
    ratio = abs_(where(flat, 1, x)) / where(flat, 1, out)
    return where(flat, 0, sign(x) * pow_(ratio, ord - 1) * g)


def _samples(rng: np.random.Generator) -> list[Sample]:
    cases: list[tuple[tuple[int, ...], Axis, float]] = [
        ((7,), None, 2.0),
        ((3, 5), 0, 1.0),
        ((2, 3, 4), (0, 2), 3.0),
        ((3, 5), -1, math.inf),
        ((3, 5), -1, -math.inf),
        ((4, 9), 1, 0.5),
        ((3, 0), 1, 2.0),
    ]
    drawn = [
        Sample(
            (rng.permutation(np.linspace(0.2, 2, math.prod(s))).reshape(s) * rng.choice([-1, 1], s),),
            {"axis": a, "ord": p, "keepdims": p == 1},
        )
        for s, a, p in cases
    ]
    count = Sample((np.array([0.0, 1.0, -2.0, np.nan]),), {"axis": None, "ord": 0.0}, special=True)
    return [*drawn, count]


vector_norm: OpFunction = reduction(
    "vector_norm",
    _np_vector_norm,
    "p-norm over `axis` (all axes by default): the `ord`-th root of the sum of powers of absolute values.\n\n"
    "`ord` 0 counts the elements that are not 0; infinity and -infinity give the largest and smallest absolute value.",
    result=dtypes.to_float,
    empty=lambda params: not math.isinf(params["ord"]),
    decompose=_vector_norm,
    gradient=vector_norm_gradient,
    samples=_samples,
    dtypes=dtypes.FLOATS,
    # A power of a sum is off by as many units as the power's exponent, for each of the two powers.
    tolerance=Tolerance(32.0, terms=reduced_terms),
    autocast=Autocast.FLOAT32,
    casts=True,
    public=False,
)


@composite()
def dist(x: TensorLike, other: TensorLike, p: float = 2.0) -> Any:
    """p-norm of `x - other`, which are broadcast."""
    return vector_norm(x - other, None, False, float(p))


@composite(in_place=True)
def renorm(x: TensorLike, p: float, dim: int, maxnorm: float) -> Any:
    """`x` with each slice along `dim` whose p-norm is above `maxnorm` scaled down to it."""
    axes = tuple(i for i in range(x.ndim) if i != dim % x.ndim)
    size = vector_norm(x, axes, True, float(p))
    above = greater(size, maxnorm)
    return x * where(above, maxnorm / (where(above, size, 1) + _RENORM_EPS), 1)
