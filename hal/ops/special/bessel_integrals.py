"""Bessel functions of orders 0 and 1 in float64, by the trapezoidal rule on their integrals and by asymptotic series.

The rule converges geometrically for periodic and for rapidly decaying integrands. Source: Trefethen and Weideman, The
exponentially convergent trapezoidal rule, SIAM Review 56 (2014); series: DLMF 10.17 and 10.40.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal.ops.tensor_like import Array

_NEAR = 28.0
"""Arguments from which on the asymptotic series are exact to float64."""
_NODES = 128
_TERMS = 22
_DECAY_NODES = 160


def _angles() -> Any:
    return 2 * np.pi * np.arange(_NODES) / _NODES


def scaled_i(order: int, x: Array) -> Any:
    """exp(-|x|) I(x)."""
    size = np.abs(x)
    theta = _angles()
    near = np.minimum(size, 2 * _NEAR)[..., None]
    integral = np.mean(np.cos(order * theta) * np.exp(near * (np.cos(theta) - 1)), axis=-1)
    if order == 1:  # the mean cancels near 0, where I1(x) is x/2 (1 + x^2/8 + x^4/192)
        z = np.minimum(size, 0.1) ** 2
        series = size / 2 * (1 + z / 8 * (1 + z / 24 * (1 + z / 48 * (1 + z / 80)))) * np.exp(-np.minimum(size, 0.1))
        integral = np.where(size < 0.1, series, integral)
    far = np.maximum(size, 2 * _NEAR)
    value = np.where(size > 2 * _NEAR, _hankel(order, far, -1.0) / np.sqrt(2 * np.pi * far), integral)
    return value * np.sign(x) if order == 1 else value


def _hankel(order: int, x: Array, sign: float) -> Any:
    """The sum of sign^k a_k / x^k."""
    total, term = np.ones_like(x), np.ones_like(x)
    for k in range(1, _TERMS):
        term = term * (sign * (4 * order * order - (2 * k - 1) ** 2) / (8 * k)) / x
        total = total + term
    return total


def scaled_k(order: int, x: Array) -> Any:
    """exp(x) K(x) for x > 0, infinite at 0 and NaN below: the integral of exp(x (1 - cosh t)) cosh(order t)."""
    inner = np.clip(np.where(x > 0, x, 1.0), 1e-300, 1e300)
    # Where the integrand is below float64's precision.
    end = np.arccosh(1 + (45 + order * np.log1p(45 / inner)) / inner)
    step = (end / _DECAY_NODES)[..., None]
    t = step * np.arange(_DECAY_NODES + 1)
    # 2 sinh^2(t/2) is cosh t - 1 without cancellation.
    values = np.exp(-inner[..., None] * 2 * np.sinh(t / 2) ** 2) * np.cosh(order * t)
    integral = step[..., 0] * (values.sum(-1) - 0.5 * values[..., 0])
    return np.where(x > 0, integral, np.where(x == 0, np.inf, np.nan))


def bessel_j(order: int, x: Array) -> Any:
    """J(x)."""
    size = np.abs(x)
    near = np.minimum(size, _NEAR)[..., None]
    theta = _angles()
    integral = np.mean(np.cos(order * theta - near * np.sin(theta)), axis=-1)
    if order == 1:  # the mean cancels near 0
        z = np.minimum(size, 0.1) ** 2
        integral = np.where(size < 0.1, size / 2 * (1 - z / 8 * (1 - z / 24 * (1 - z / 48 * (1 - z / 80)))), integral)
    value = np.where(size > _NEAR, _oscillation(order, size)[0], integral)
    return value * np.where(x < 0, -1, 1) if order == 1 else value


def bessel_y(order: int, x: Array) -> Any:
    """Y(x): a series of even Bessel functions near 0 (DLMF 10.8), the asymptotic one beyond; NaN below 0."""
    inner = np.clip(np.where(x > 0, x, 1.0), 1e-300, _NEAR)
    theta = _angles()
    phase = inner[..., None] * np.sin(theta)
    logarithm = 2 / np.pi * (np.log(inner / 2) + np.euler_gamma)
    j0, j1 = np.mean(np.cos(phase), axis=-1), np.mean(np.cos(theta - phase), axis=-1)
    weights = [(-1) ** k / k for k in range(1, 31)]
    if order == 0:
        kernel = sum(w * np.cos(2 * k * theta - phase) for k, w in enumerate(weights, 1))
        near = logarithm * j0 - 4 / np.pi * np.mean(kernel, axis=-1)
    else:
        kernel = sum(w * np.sin(2 * k * theta - phase) * np.sin(theta) for k, w in enumerate(weights, 1))
        near = logarithm * j1 - 2 / np.pi * j0 / inner + 4 / np.pi * np.mean(kernel, axis=-1)
    value = np.where(x > _NEAR, _oscillation(order, np.abs(x))[1], near)
    return np.where(x > 0, value, np.where(x == 0, -np.inf, np.nan))


def _oscillation(order: int, size: Array) -> tuple[Any, Any]:
    """J and Y for large arguments: two series times sine and cosine."""
    far = np.where(np.isfinite(size), np.maximum(size, _NEAR), _NEAR)
    p, q, term = np.ones_like(far), np.zeros_like(far), np.ones_like(far)
    for k in range(1, _TERMS):
        term = term * ((4 * order * order - (2 * k - 1) ** 2) / (8 * k)) / far
        sign = -1.0 if k % 4 in (2, 3) else 1.0
        p, q = (p, q + sign * term) if k % 2 else (p + sign * term, q)
    # sin and cos of x - pi/4 by the sum formulas, which do not round the difference.
    c, s = (np.cos(far) + np.sin(far)) * math.sqrt(0.5), (np.sin(far) - np.cos(far)) * math.sqrt(0.5)
    if order == 1:
        c, s = s, -c
    scale = np.where(np.isinf(size), 0.0, np.sqrt(2 / (np.pi * far)))
    return scale * (p * c - q * s), scale * (p * s + q * c)
