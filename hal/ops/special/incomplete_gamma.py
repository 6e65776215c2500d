"""The regularized incomplete gamma functions: a power series below a + 1, a continued fraction above (DLMF 8.11, 8.9)."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal.ops.declare import Autocast, Names, OpFunction, Sample, Tolerance
from polyhal.hal.ops.pointwise.elementwise import elementwise
from polyhal.hal.ops.pointwise.exponential import exp
from polyhal.hal.ops.special.gamma import lgamma
from polyhal.hal.ops.special.logarithms import xlogy
from polyhal.hal.ops.tensor_like import Array, TensorLike

_MAX_TERMS = 20000
_EPS = 1e-16


def _series(a: Array, x: Array) -> Any:
    """P(a, x) without its factor: the sum of x^n / ((a + 1) ... (a + n)), over a."""
    term = np.ones_like(x)
    total = np.ones_like(x)
    for n in range(1, _MAX_TERMS):
        term = term * x / (a + n)
        total = total + term
        if not np.any(term > _EPS * total):
            break
    return total / a


def _fraction(a: Array, x: Array) -> Any:
    """Q(a, x) without its factor, by the modified Lentz method."""
    tiny = 1e-300
    b = x + 1 - a
    c, d = np.full_like(x, 1 / tiny), 1 / np.where(b == 0, tiny, b)
    value = d
    for n in range(1, _MAX_TERMS):
        step = -n * (n - a)
        b = b + 2
        d = step * d + b
        c = b + step / c
        d, c = 1 / np.where(d == 0, tiny, d), np.where(c == 0, tiny, c)
        value = value * d * c
        if not np.any(np.abs(d * c - 1) > _EPS * 4):
            break
    return value


def _lower_and_upper(a: Array, x: Array | int) -> tuple[Any, Any]:
    a, x = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(x, np.float64))
    with np.errstate(all="ignore"):
        regular = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
        safe_a, safe_x = np.where(regular, a, 1.0), np.where(regular, x, 1.0)
        below = safe_x < safe_a + 1
        factor = np.exp(safe_a * np.log(safe_x) - safe_x - np.asarray(lgamma.op.reference(safe_a)))
        lower = factor * _series(safe_a, np.where(below, safe_x, 0.5))
        upper = factor * _fraction(safe_a, np.where(below, safe_a + 1, safe_x))
        p, q = np.where(below, lower, 1 - upper), np.where(below, 1 - lower, upper)
        invalid = (a < 0) | (x < 0) | np.isnan(a) | np.isnan(x) | ((a == 0) & (x == 0)) | (np.isinf(a) & np.isinf(x))
        one = (a == 0) | np.isinf(x)
        p = np.where(invalid, np.nan, np.where(regular, p, np.where(one, 1.0, 0.0)))
        q = np.where(invalid, np.nan, np.where(regular, q, np.where(one, 0.0, 1.0)))
    return p, q


def _samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample((rng.uniform(0.2, 9, a), rng.uniform(0.05, 20, b)), differentiable=False)
        for a, b in [((33,), (33,)), ((4, 1), (3,))]
    ]


def _density(a: TensorLike, x: TensorLike) -> Any:
    """The derivative with respect to x."""
    return exp(xlogy(a - 1.0, x) - x - lgamma(a))


def _declare(name: str, position: int, sign: float, doc: str, scipy_name: str) -> OpFunction:
    def refuse(g: TensorLike) -> Any:
        problem = "the gradient with respect to a is not implemented; expected a without gradients"
        raise NotImplementedError(f"[{name}] {problem}")

    return elementwise(
        name,
        lambda a, x: _lower_and_upper(a, x)[position],
        doc,
        promotion="float",
        on_host="the length of its series and of its continued fraction depends on the element",
        gradient=(refuse, lambda g, a, x: g * (_density(a, x) * sign)),
        samples=_samples,
        tolerance=Tolerance(4.0),
        autocast=Autocast.FLOAT32,
        names=Names(scipy_name),
    )


igamma = _declare("igamma", 0, 1.0, "Regularized lower incomplete gamma function P(a, x).", "special.gammainc")
igammac = _declare("igammac", 1, -1.0, "Regularized upper incomplete gamma function Q(a, x).", "special.gammaincc")
