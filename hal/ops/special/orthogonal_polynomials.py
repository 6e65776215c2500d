"""Orthogonal polynomials of degree `n` by their three-term recurrences (DLMF 18.9), with PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyhal.hal.ops.declare import Autocast, Names, OpFunction, Sample, Tolerance
from polyhal.hal.ops.pointwise.elementwise import elementwise
from polyhal.hal.ops.tensor_like import Array

Step = Callable[[int, Any, Any, Any], Any]
"""The polynomial of degree k + 1 from k, x, and those of degrees k and k - 1."""

_MAX_DEGREE = 10000


def _evaluate(first: Callable[[Any], Any], step: Step, x: Array, n: Array | float) -> Any:
    x, n = np.broadcast_arrays(np.asarray(x, np.float64), np.trunc(np.asarray(n, np.float64)))
    with np.errstate(all="ignore"):
        last, current = np.ones(x.shape), first(x)
        result = np.where(n == 0, last, np.where(n == 1, current, 0.0))
        highest = int(min(np.max(n, initial=0), _MAX_DEGREE))
        for k in range(1, highest):
            last, current = current, step(k, x, current, last)
            result = np.where(n == k + 1, current, result)
    return result


def _chebyshev(k: int, x: Array, p: Array, q: Array) -> Any:
    return 2 * x * p - q


def _samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample((rng.uniform(-1.0, 1.5, (4, 5)), rng.integers(0, 5, (5,)).astype(np.float64)), differentiable=False),
        Sample((rng.uniform(-1.5, 1.5, (7,)), 3.0), differentiable=False),
    ]


def _declare(name: str, first: Callable[[Any], Any], step: Step, doc: str) -> OpFunction:
    return elementwise(
        name,
        lambda x, n: _evaluate(first, step, x, n),
        f"{doc} of degree `n` at `x`; 0 for a negative degree.",
        promotion="float",
        on_host="the length of its recurrence is the degree, which differs from element to element",
        samples=_samples,
        tolerance=Tolerance(4.0, floor=1.0),
        autocast=Autocast.FLOAT32,
        public=False,
        names=Names("special."),
    )


_KINDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "t": (lambda x: x, "first"),
    "u": (lambda x: 2 * x, "second"),
    "v": (lambda x: 2 * x - 1, "third"),
    "w": (lambda x: 2 * x + 1, "fourth"),
}
for _letter, (_first, _kind) in _KINDS.items():
    _declare(f"chebyshev_polynomial_{_letter}", _first, _chebyshev, f"Chebyshev polynomial of the {_kind} kind")
    _declare(
        f"shifted_chebyshev_polynomial_{_letter}",
        lambda x, first=_first: first(2 * x - 1),  # type: ignore[misc]
        lambda k, x, p, q: _chebyshev(k, 2 * x - 1, p, q),
        f"Shifted Chebyshev polynomial of the {_kind} kind",
    )
_declare(
    "hermite_polynomial_h", lambda x: 2 * x, lambda k, x, p, q: 2 * x * p - 2 * k * q, "Physicist's Hermite polynomial"
)
_declare("hermite_polynomial_he", lambda x: x, lambda k, x, p, q: x * p - k * q, "Probabilist's Hermite polynomial")
_declare(
    "laguerre_polynomial_l",
    lambda x: 1 - x,
    lambda k, x, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1),
    "Laguerre polynomial",
)
_declare(
    "legendre_polynomial_p",
    lambda x: x,
    lambda k, x, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1),
    "Legendre polynomial",
)
