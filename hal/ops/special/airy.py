"""The Airy function Ai in float64, by quadrature of its contour integral and by asymptotic series.

Source: DLMF 9.5 and 9.7.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from polyhal.hal.ops.tensor_like import Array

_FAR = 9.0
"""Beyond, on the negative side, the oscillating series is exact to float64."""
_TURN = 2.0
"""From here on the integral along the steepest descent from the saddle point, which does not cancel."""
_TERMS = 18


@functools.cache
def _nodes() -> tuple[Any, Any]:
    """Nodes and weights of Gauss and Legendre on [0, 8], where the integrands decay below float64's precision."""
    nodes, weights = np.polynomial.legendre.leggauss(160)
    return 4 * (nodes + 1), 4 * weights


def airy_ai(x: Array) -> Any:
    """Ai(x); 0 at both infinities."""
    t, weights = _nodes()
    turned = np.exp(1j * np.pi / 6)
    near = np.clip(np.where(np.isnan(x), 0.0, x), -_FAR, _TURN)[..., None]
    middle = (turned * (np.exp(-(t**3) / 3 + 1j * turned * near * t) @ weights)).real / np.pi
    large = np.clip(np.where(np.isnan(x), _TURN, x), _TURN, 200.0)
    root = np.sqrt(large)
    descent = (np.exp(-root[..., None] * t * t) * np.cos(t**3 / 3)) @ weights
    right = descent * np.exp(-2 / 3 * root**3) / np.pi
    left = _oscillation(np.maximum(np.where(np.isfinite(x), -x, _FAR), _FAR))
    value = np.where(x > _TURN, right, np.where(x < -_FAR, left, middle))
    return np.where(np.isnan(x), np.nan, np.where(np.isinf(x), 0.0, value))


def _oscillation(size: Array) -> Any:
    """Ai(-size)."""
    zeta = 2 / 3 * size * np.sqrt(size)
    p, q, term = np.ones_like(zeta), np.zeros_like(zeta), np.ones_like(zeta)
    for k in range(1, _TERMS):
        term = term * ((6 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216 * k * (2 * k - 1))) / zeta
        sign = -1.0 if k % 4 in (2, 3) else 1.0
        p, q = (p, q + sign * term) if k % 2 else (p + sign * term, q)
    angle = zeta - np.pi / 4
    return (np.cos(angle) * p + np.sin(angle) * q) / (np.sqrt(np.pi) * size**0.25)
