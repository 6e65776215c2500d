"""The complementary error function and its uses in statistics: the normal distribution, its logarithm and quantiles."""

from __future__ import annotations

import math
from typing import Any

from polyhal.hal.ops.declare import Autocast, Names, Tolerance
from polyhal.hal.ops.opdef import OpFunction
from polyhal.hal.ops.pointwise.arithmetic import square
from polyhal.hal.ops.pointwise.elementwise import elementwise
from polyhal.hal.ops.pointwise.elementwise_samples import spread
from polyhal.hal.ops.pointwise.exponential import exp
from polyhal.hal.ops.pointwise.polynomials import ERF_NEAR, ERFC_FAR, ERFC_MIDDLE
from polyhal.hal.ops.special.namespace import TENSORS, horner, reference_of
from polyhal.hal.ops.special.quantile import normal_quantile
from polyhal.hal.ops.tensor_like import TensorLike

_TWO_OVER_SQRT_PI = 2 / math.sqrt(math.pi)
_ONE_OVER_SQRT_PI = 1 / math.sqrt(math.pi)
_HALF_LOG = 1 / math.sqrt(2 * math.pi)
_LIMIT = 1e4
"""Beyond it erfcx is 1 / (x sqrt(pi)) in float64, and no intermediate result overflows float32."""


def _scaled_tail(m: Any, a: TensorLike) -> Any:
    """exp(a^2) erfc(a) for a >= 0.46875. Source: Cody, Math. Comp. 23 (1969)."""
    t = m.minimum(a, 4.0)
    middle = horner(t, ERFC_MIDDLE[0]) / horner(t, ERFC_MIDDLE[1])
    far = m.minimum(m.maximum(a, 4.0), _LIMIT)
    z = 1.0 / (far * far)
    tail = (_ONE_OVER_SQRT_PI - z * (horner(z, ERFC_FAR[0]) / horner(z, ERFC_FAR[1]))) / far
    return m.where(m.less(a, 4.0), middle, m.where(m.less(_LIMIT, a), _ONE_OVER_SQRT_PI / a, tail))


def _gaussian(m: Any, a: TensorLike, sign: float) -> Any:
    """exp(sign a^2): the square is split, so that its rounding error does not reach the exponential."""
    coarse = m.floor(a * 16.0) * 0.0625
    return m.exp(coarse * coarse * sign) * m.exp((a - coarse) * (a + coarse) * sign)


def _near_erf(m: Any, x: TensorLike, size: TensorLike) -> Any:
    inner = m.where(m.less(size, 0.46875), x, 0.0)
    z = inner * inner
    return inner * (horner(z, ERF_NEAR[0]) / horner(z, ERF_NEAR[1]))


def _erfc(m: Any, x: TensorLike) -> Any:
    size = m.abs(x)
    a = m.maximum(m.minimum(size, 30.0), 0.46875)
    tail = _gaussian(m, a, -1.0) * _scaled_tail(m, a)
    far = m.where(m.less(x, 0.0), 2.0 - tail, tail)
    return m.where(m.less(size, 0.46875), 1.0 - _near_erf(m, x, size), m.where(m.equal(x, x), far, x))


def _erfcx(m: Any, x: TensorLike) -> Any:
    size = m.abs(x)
    a = m.maximum(size, 0.46875)
    tail = _scaled_tail(m, a)
    growth = _gaussian(m, m.minimum(size, 30.0), 1.0)
    near = growth * (1.0 - _near_erf(m, x, size))
    far = m.where(m.less(x, 0.0), growth * 2.0 - tail, tail)
    return m.where(m.less(size, 0.46875), near, m.where(m.equal(x, x), far, x))


def _erfcx_slope(m: Any, x: TensorLike, out: TensorLike) -> Any:
    """The derivative of erfcx, 2 x erfcx(x) - 2 / sqrt(pi). Its terms cancel for large x, where their difference is the
    correction of `_scaled_tail`."""
    far = m.minimum(m.maximum(x, 4.0), _LIMIT)
    z = 1.0 / (far * far)
    tail = z * (horner(z, ERFC_FAR[0]) / horner(z, ERFC_FAR[1])) * -2.0
    large = m.maximum(x, _LIMIT)  # a quotient by 0 that `where` does not take would be NaN in the second derivative
    beyond = m.where(m.less(_LIMIT, x), -_ONE_OVER_SQRT_PI / large / large, tail)
    return m.where(m.less(4.0, x), beyond, out * x * 2.0 - _TWO_OVER_SQRT_PI)


def _ndtr(m: Any, x: TensorLike) -> Any:
    return _erfc(m, x * -math.sqrt(0.5)) * 0.5


def _log_ndtr(m: Any, x: TensorLike) -> Any:
    t = x * math.sqrt(0.5)
    below = m.log(_erfcx(m, -m.minimum(t, 0.0)) * 0.5) - t * t
    return m.where(m.less(x, -1.0), below, m.log1p(_erfc(m, m.maximum(t, -1.0)) * -0.5))


def _erfinv(m: Any, y: TensorLike) -> Any:
    return normal_quantile(m, y * 0.5, (1.0 - m.abs(y)) * 0.5) * math.sqrt(0.5)


def _ndtri(m: Any, p: TensorLike) -> Any:
    return normal_quantile(m, p - 0.5, m.minimum(p, 1.0 - p))


erfc = elementwise(
    "erfc",
    reference_of(_erfc),
    "Complementary error function `1 - erf(x)`, accurate for large `x`.",
    inputs=("x",),
    promotion="float",
    decompose=lambda x: _erfc(TENSORS, x),
    gradient=lambda g, x: g * (exp(-square(x)) * -_TWO_OVER_SQRT_PI),
    samples=spread(-4.0, 8.0),
    tolerance=Tolerance(24.0),
    autocast=Autocast.FLOAT32,
    names=Names("special."),
)
erfcx = elementwise(
    "erfcx",
    reference_of(_erfcx),
    "Scaled complementary error function `exp(x * x) * erfc(x)`.",
    inputs=("x",),
    promotion="float",
    decompose=lambda x: _erfcx(TENSORS, x),
    gradient=lambda g, x, out: g * _erfcx_slope(TENSORS, x, out),
    samples=spread(-2.0, 8.0),
    tolerance=Tolerance(24.0),
    autocast=Autocast.FLOAT32,
    public=False,
    names=Names("special."),
)
ndtr = elementwise(
    "ndtr",
    reference_of(_ndtr),
    "Normal distribution function: the area under the Gaussian density below `x`.",
    inputs=("x",),
    promotion="float",
    decompose=lambda x: _ndtr(TENSORS, x),
    gradient=lambda g, x: g * (exp(square(x) * -0.5) * _HALF_LOG),
    samples=spread(-4.0, 4.0),
    # x / sqrt(2) is rounded, which moves the tail by x * x times that relative error.
    tolerance=Tolerance(48.0),
    autocast=Autocast.FLOAT32,
    public=False,
    names=Names("special."),
)
log_ndtr = elementwise(
    "log_ndtr",
    reference_of(_log_ndtr),
    "Logarithm of the normal distribution function.",
    inputs=("x",),
    promotion="float",
    decompose=lambda x: _log_ndtr(TENSORS, x),
    gradient=lambda g, x: g * (math.sqrt(2 / math.pi) / erfcx(x * -math.sqrt(0.5))),
    samples=spread(-4.0, 3.0),
    tolerance=Tolerance(48.0),
    autocast=Autocast.FLOAT32,
    public=False,
    names=Names("special."),
)
erfinv: OpFunction = elementwise(
    "erfinv",
    reference_of(_erfinv),
    "Inverse of the error function; infinite at 1 and -1, NaN beyond.",
    inputs=("x",),
    promotion="float",
    decompose=lambda x: _erfinv(TENSORS, x),
    gradient=lambda g, x: g * (exp(square(erfinv(x))) * (math.sqrt(math.pi) / 2)),  # the result may be overwritten
    samples=spread(-0.95, 0.95),
    tolerance=Tolerance(24.0),
    autocast=Autocast.FLOAT32,
    names=Names("special."),
)
ndtri = elementwise(
    "ndtri",
    reference_of(_ndtri),
    "Normal quantile: where the normal distribution function is `x`.",
    inputs=("x",),
    promotion="float",
    decompose=lambda x: _ndtri(TENSORS, x),
    gradient=lambda g, out: g * (exp(square(out) * 0.5) * math.sqrt(2 * math.pi)),
    samples=spread(0.05, 0.95),
    tolerance=Tolerance(24.0, floor=1.0),
    autocast=Autocast.FLOAT32,
    public=False,
    names=Names("special."),
)
