"""The Hurwitz zeta function by Euler-Maclaurin summation, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal.ops.tensor_like import Array

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)
_DIRECT_TERMS = 12


def hurwitz_zeta(x: Array | float, q: Array) -> Any:
    """The sum of (k + q)^-x in float64, with the conventions of Cephes where it diverges."""
    with np.errstate(all="ignore"):
        x, q = np.broadcast_arrays(np.asarray(x, np.float64), np.asarray(q, np.float64))
        # Negative q: as many more direct terms as lead beyond 0.
        extra = int(np.nan_to_num(np.max(-np.floor(q), initial=0.0), nan=0.0, posinf=0.0, neginf=0.0).clip(0, 10000))
        total = sum((_power(q + k, x) for k in range(_DIRECT_TERMS + extra)), np.zeros(x.shape))
        w = q + (_DIRECT_TERMS + extra)
        total = total + _power(w, x) * (w / (x - 1) + 0.5)
        factor = x * _power(w, x) / w
        for j, bernoulli in enumerate(_BERNOULLI):
            order = 2.0 * (j + 1)
            total = total + factor * (bernoulli / float(_factorial(2 * (j + 1))))
            factor = factor * (x + order - 1) * (x + order) / (w * w)
        whole_q, whole_x = q == np.floor(q), x == np.floor(x)
        total = np.where((q <= 0) & whole_q, np.inf, np.where((q <= 0) & ~whole_x, np.nan, total))
        total = np.where(np.isinf(q), np.where(q > 0, 0.0, np.nan), total)
        return np.where(x == 1, np.inf, np.where(x < 1, np.nan, total))


def _power(base: Array, x: Array) -> Any:
    return np.power(base, -x)


def _factorial(n: int) -> int:
    return n * _factorial(n - 1) if n else 1
