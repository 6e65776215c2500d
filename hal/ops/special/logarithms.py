"""Products with logarithms, which vanish where the factor does, and the cardinal sine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.declare import Autocast, Names, Sample, Tolerance
from polyhal.hal.ops.pointwise.arithmetic import abs_
from polyhal.hal.ops.pointwise.elementwise import elementwise
from polyhal.hal.ops.pointwise.elementwise_samples import pairs, spread
from polyhal.hal.ops.pointwise.exponential import log, log1p
from polyhal.hal.ops.pointwise.logic import equal, less, less_equal, logical_and, logical_or
from polyhal.hal.ops.pointwise.rounding import isinf
from polyhal.hal.ops.pointwise.selection import clip, where
from polyhal.hal.ops.pointwise.trigonometry import cos, sin
from polyhal.hal.ops.special.namespace import horner
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _times(x: TensorLike, logarithm: TensorLike, y: TensorLike) -> Any:
    return where(logical_and(equal(x, 0.0), equal(y, y)), 0.0, x * logarithm)


def _np_times(x: Array, y: Array, logarithm: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.where((np.asarray(x) == 0) & ~np.isnan(y), 0.0, x * logarithm(y))


xlogy = elementwise(
    "xlogy",
    lambda x, y: _np_times(x, y, np.log),
    "`x * log(y)`, and 0 where `x` is 0.",
    promotion="float",
    decompose=lambda x, y: _times(x, log(y), y),
    gradient=(
        lambda g, x, y: g * where(logical_and(equal(x, 0.0), less_equal(y, 0.0)), 0.0, log(y)),
        lambda g, x, y: g * x / y,
    ),
    samples=pairs((-4.0, 4.0), (0.05, 8.0)),
    tolerance=Tolerance(8.0, floor=1.0),
    autocast=Autocast.FLOAT32,
    names=Names("special."),
)
xlog1py = elementwise(
    "xlog1py",
    lambda x, y: _np_times(x, y, np.log1p),
    "`x * log(1 + y)`, and 0 where `x` is 0.",
    promotion="float",
    decompose=lambda x, y: _times(x, log1p(y), y),
    gradient=(
        lambda g, x, y: g * where(logical_and(equal(x, 0.0), less_equal(y, -1.0)), 0.0, log1p(y)),
        lambda g, x, y: g * x / (y + 1.0),
    ),
    samples=pairs((-4.0, 4.0), (-0.9, 8.0)),
    tolerance=Tolerance(12.0, floor=1.0),
    autocast=Autocast.FLOAT32,
    public=False,
    names=Names("special."),
)
entr = elementwise(
    "entr",
    lambda x: np.where(np.asarray(x) < 0, -np.inf, -_np_times(x, x, np.log)),
    "Entropy `-x * log(x)`: 0 at 0, negative infinity below.",
    promotion="float",
    decompose=lambda x: where(less(x, 0.0), -math.inf, -_times(x, log(x), x)),
    gradient=lambda g, x: g * (-log(x) - 1.0),
    samples=spread(0.05, 4.0),
    tolerance=Tolerance(8.0, floor=1.0),
    autocast=Autocast.FLOAT32,
    public=False,
    names=Names("special."),
)
logit_of = elementwise(
    "logit_of",
    lambda x: np.log(x / (1 - np.asarray(x))),
    "Inverse of sigmoid: `log(x / (1 - x))`.",
    promotion="float",
    decompose=lambda x: log(x / (1.0 - x)),
    gradient=lambda g, x: g / where(logical_or(less(x, 0.0), less(1.0, x)), math.nan, x * (1.0 - x)),
    samples=spread(0.05, 0.95),
    tolerance=Tolerance(12.0, floor=1.0),
    autocast=Autocast.FLOAT32,
    public=False,
)


@composite("special.", in_place=True, aten=".default")
def logit(x: TensorLike, eps: float | None = None) -> Any:
    """Inverse of sigmoid: `log(x / (1 - x))`, with `eps` of `x` limited to [eps, 1 - eps].

    Takes a tensor of any shape.
    """
    return logit_of(x if eps is None else clip(x, eps, 1.0 - eps))


_SINC_SERIES = tuple((-1) ** k * 2 * k / math.factorial(2 * k + 1) for k in range(7, 0, -1))
"""The derivative of sin(z) / z over z, as a polynomial of z squared: up to z = 0.5 the next term is 1e-17 of the first."""


def _sinc_gradient(g: TensorLike, x: TensorLike) -> Any:
    """Evaluate the series near 0, where cosine and sine cancel and second derivatives would be 0 / 0."""
    z = x * math.pi
    near = less(abs_(z), 0.5)
    small, large, size = where(near, z, 0.0), where(near, 1.0, z), where(near, 1.0, x)
    square_of = small * small
    series = horner(square_of, _SINC_SERIES) * small * math.pi
    return g * where(near, series, (cos(large) - sin(large) / large) / size)


def _np_spherical_bessel_j0(x: Array) -> Any:
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(x), 0.0, np.sinc(np.asarray(x, np.float64) / math.pi))


def _spherical_bessel_j0(x: TensorLike) -> Any:
    special = logical_or(equal(x, 0.0), isinf(x))
    usual = where(special, 1.0, x)
    return where(special, where(equal(x, 0.0), 1.0, 0.0), sin(usual) / usual)


sinc = elementwise(
    "sinc",
    np.sinc,
    "Cardinal sine `sin(pi x) / (pi x)`, 1 at 0.",
    promotion="float",
    inputs=("x",),
    decompose=lambda x: where(equal(x, 0.0), 1.0, sin(x * math.pi) / (x * math.pi)),
    gradient=_sinc_gradient,
    # Near 0 the gradient is the difference of a sine and a cosine over x.
    samples=lambda rng: [Sample((rng.choice([-1.0, 1.0], s) * rng.uniform(0.3, 1.4, s),)) for s in [(33,), (3, 1, 5)]],
    # Near a zero of the sine the rounding of pi x remains.
    tolerance=Tolerance(12.0, floor=1.0),
    names=Names("special."),
)
spherical_bessel_j0 = elementwise(
    "spherical_bessel_j0",
    _np_spherical_bessel_j0,
    "Spherical Bessel function of order 0: `sin(x) / x`, 1 at 0, 0 at infinity.",
    promotion="float",
    decompose=_spherical_bessel_j0,
    samples=spread(-4.0, 4.0),
    tolerance=Tolerance(12.0, floor=1.0),
    public=False,
    names=Names("special."),
)
