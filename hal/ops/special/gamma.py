"""The logarithm of the gamma function, its derivatives (digamma, polygamma), and the Hurwitz zeta function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.declare import Autocast, Names, OpFunction, Sample, Tolerance
from polyhal.hal.ops.pointwise.elementwise import elementwise
from polyhal.hal.ops.pointwise.elementwise_samples import spread
from polyhal.hal.ops.special.namespace import TENSORS, horner, reference_of
from polyhal.hal.ops.special.zeta_series import hurwitz_zeta
from polyhal.hal.ops.tensor_like import Array, TensorLike

_ON_2_TO_3 = (
    (-1.37825152569120859100e3, -3.88016315134637840924e4, -3.31612992738871184744e5, -1.16237097492762307383e6,
     -1.72173700820839662146e6, -8.53555664245765465627e5),
    (1.0, -3.51815701436523470549e2, -1.70642106651881159223e4, -2.20528590553854454839e5, -1.13933444367982507207e6,
     -2.53252307177582951285e6, -2.01889141433532773231e6),
)  # fmt: skip
"""log gamma(x + 2) / x for 0 <= x <= 1. Source: the Cephes Mathematical Library, lgam."""
_STIRLING = (1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_DIGAMMA = (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)


def _log_gamma_positive(m: Any, x: TensorLike | Array) -> Any:
    """For x >= 1/2: products of shifted arguments lead to [2, 3] from below 8, Stirling's series serves above."""
    small = m.less(x, 8.0)
    s = m.where(small, x, 2.5)
    product = x * 0.0 + 1.0
    for _ in range(5):
        above = m.less(3.0, s)
        s = m.where(above, s - 1.0, s)
        product = m.where(above, product * s, product)
    divisor = product * 0.0 + 1.0
    for _ in range(2):
        below = m.less(s, 2.0)
        divisor = m.where(below, divisor * s, divisor)
        s = m.where(below, s + 1.0, s)
    s = s - 2.0
    near = m.log(product / divisor) + s * (horner(s, _ON_2_TO_3[0]) / horner(s, _ON_2_TO_3[1]))
    large = m.where(small, 8.0, x)
    r = 1.0 / large
    series = r * horner(r * r, _STIRLING)
    # x log x - x as a product overflows only where the result does.
    far = (large - 0.5) * (m.log(large) - 1.0) + (_HALF_LOG_2PI - 0.5 + series)
    return m.where(small, near, m.where(m.equal(x, math.inf), x, far))


def _sine_of_pi(m: Any, x: TensorLike | Array) -> Any:
    """|sin(pi x)|, of the distance to the nearest integer."""
    return m.sin(m.abs(x - m.floor(x + 0.5)) * math.pi)


def _lgamma(m: Any, x: TensorLike | Array) -> Any:
    reflected = m.less(x, 0.5)
    value = _log_gamma_positive(m, m.where(reflected, 1.0 - x, x))
    pole = m.logical_and(reflected, m.equal(m.floor(x), x))
    sine = m.where(reflected, _sine_of_pi(m, m.where(m.less(-math.inf, x), x, 0.5)), 1.0)
    mirrored = math.log(math.pi) - m.log(m.where(pole, 1.0, sine)) - value
    return m.where(pole, math.inf, m.where(reflected, mirrored, value))


def _digamma(m: Any, x: TensorLike) -> Any:
    reflected = m.less(x, 0.0)
    s = m.where(reflected, 1.0 - x, x)
    total = s * 0.0
    total = m.where(m.equal(total, total), total, 0.0)
    for _ in range(10):
        low = m.less(s, 10.0)
        total = m.where(low, total - 1.0 / m.where(low, s, 1.0), total)
        s = m.where(low, s + 1.0, s)
    r = 1.0 / s
    z = r * r
    value = total + m.log(s) - 0.5 * r - z * horner(z, _DIGAMMA)
    fraction = m.where(m.less(-math.inf, x), x - m.floor(x + 0.5), 0.0)
    angle = m.where(reflected, fraction, 0.25) * math.pi
    mirrored = value - math.pi * (m.cos(angle) / m.sin(angle))
    pole = m.logical_and(reflected, m.equal(m.floor(x), x))
    value = m.where(reflected, m.where(pole, math.nan, mirrored), value)
    # At 0 the sign is that of -1/x.
    return m.where(m.equal(x, 0.0), -1.0 / x, value)


def _np_lgamma(x: Array) -> Any:
    with np.errstate(all="ignore"):
        return _lgamma(np, np.asarray(x, np.float64))


lgamma: OpFunction = elementwise(
    "lgamma",
    _np_lgamma,
    "Logarithm of the absolute value of the gamma function; infinite at 0 and the negative integers.",
    promotion="float",
    decompose=lambda x: _lgamma(TENSORS, x),
    gradient=lambda g, x: g * digamma(x),
    samples=spread(0.3, 12.0),
    # Near the zeros at 1 and 2 the rounding of a logarithm near 0 remains.
    tolerance=Tolerance(16.0, floor=2.0),
    autocast=Autocast.FLOAT32,
    names=Names("special.gammaln"),
)
digamma: OpFunction = elementwise(
    "digamma",
    reference_of(_digamma),
    "Logarithmic derivative of the gamma function; NaN at the negative integers.",
    inputs=("x",),
    promotion="float",
    decompose=lambda x: _digamma(TENSORS, x),
    gradient=lambda g, x: g * polygamma_at(x, n=1),
    samples=spread(0.3, 12.0),
    # Up to ten reciprocals are added to a logarithm of 10.
    tolerance=Tolerance(16.0, floor=4.0),
    autocast=Autocast.FLOAT32,
    names=Names("special.", "special.psi"),
)


def _np_polygamma(x: Array, *, n: int) -> Any:
    """The derivative n of digamma: (-1)^(n+1) n! zeta(n + 1, x); below 1/2 the derivative 1 by reflection."""
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        if n == 1:
            mirrored = (np.pi / np.sin(np.pi * (x - np.round(x)))) ** 2 - hurwitz_zeta(2.0, 1.0 - x)
            pole = np.isfinite(x) & (x == np.floor(x))
            return np.where(x < 0.5, np.where(pole, np.inf, mirrored), hurwitz_zeta(2.0, x))
        return (-1.0) ** (n + 1) * math.factorial(n) * hurwitz_zeta(n + 1.0, x)


_SERIES = "its series adds terms in float64 until each element's are small, and it is rarely called"
polygamma_at: OpFunction = elementwise(
    "polygamma_at",
    _np_polygamma,
    "Derivative `n` of digamma, for n >= 1.",
    promotion="float",
    on_host=_SERIES,
    gradient=lambda g, x, *, n: g * polygamma_at(x, n=n + 1),
    samples=lambda rng: [Sample((rng.uniform(0.5, 8, (3, 5)),), {"n": n}) for n in (1, 2, 3)],
    tolerance=Tolerance(4.0),
    autocast=Autocast.FLOAT32,
    public=False,
)
zeta = elementwise(
    "zeta",
    lambda x, q: hurwitz_zeta(x, q),
    "Hurwitz zeta function: the sum of `(k + q) ** -x` over k >= 0; NaN for x < 1.",
    promotion="float",
    on_host=_SERIES,
    samples=lambda rng: [
        Sample((rng.uniform(1.5, 8, a), rng.uniform(0.5, 8, b)), differentiable=False)
        for a, b in [((33,), (33,)), ((4, 1), (3,))]
    ],
    tolerance=Tolerance(4.0),
    autocast=Autocast.FLOAT32,
    public=False,
    names=Names("special."),
)


@composite("special.", in_place=True, aten=".default polygamma_")
def polygamma(n: TensorLike | int, x: TensorLike) -> Any:
    """Derivative `n` of digamma at `x`. Raises ValueError for a negative `n`. Takes a tensor of any shape."""
    if not isinstance(n, int):
        n, x = x, n
    if n < 0:
        raise ValueError(f"[polygamma] n is {n}; expected 0 or more")
    return digamma(x) if n == 0 else polygamma_at(x, n=n)


@composite("special.multigammaln", in_place=True, aten=".default")
def mvlgamma(x: TensorLike, p: int) -> Any:
    """Logarithm of the multivariate gamma function of dimension `p`; `x` must be greater than (p - 1) / 2.

    Takes a tensor of any shape. Raises ValueError for `p` below 1.
    """
    if p < 1:
        raise ValueError(f"[mvlgamma] p is {p}; expected 1 or more")
    total = lgamma(x)
    for j in range(1, p):
        total = total + lgamma(x - 0.5 * j)
    return total + p * (p - 1) / 4 * math.log(math.pi)
