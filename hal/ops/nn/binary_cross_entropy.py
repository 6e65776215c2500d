"""Binary cross entropy of probabilities, with logarithms bounded below."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal.ops.declare import Autocast, OpFunction, Sample, Tolerance
from polyhal.hal.ops.pointwise.elementwise import elementwise
from polyhal.hal.ops.pointwise.exponential import log, log1p
from polyhal.hal.ops.pointwise.selection import maximum
from polyhal.hal.ops.tensor_like import Array, TensorLike

_LOWEST = -100.0
"""Logarithms below this count as this, as in PyTorch: the loss of a certain mistake is finite."""
_FLATTEST = 1e-12
"""The derivative is divided by at least this."""


def _reference(x: Array, target: Array) -> Any:
    with np.errstate(divide="ignore"):
        low, high = np.maximum(np.log1p(-np.asarray(x)), _LOWEST), np.maximum(np.log(x), _LOWEST)
    return (np.asarray(target) - 1) * low - target * high


def _decomposed(x: TensorLike, target: TensorLike) -> Any:
    return (target - 1.0) * maximum(log1p(-x), _LOWEST) - target * maximum(log(x), _LOWEST)


def _gradient(g: TensorLike, x: TensorLike, target: TensorLike) -> Any:
    return g * ((x - target) / maximum((1.0 - x) * x, _FLATTEST))


def _gradient_of_target(g: TensorLike, x: TensorLike) -> Any:
    return g * (maximum(log1p(-x), _LOWEST) - maximum(log(x), _LOWEST))


def _samples(rng: np.random.Generator) -> list[Sample]:
    pairs = [(rng.uniform(0.05, 0.95, s), rng.uniform(0, 1, s)) for s in [(), (33,), (3, 1, 5)]]
    certain = (np.array([0.0, 0.0, 1.0, 1.0]), np.array([0.0, 1.0, 0.0, 1.0]))
    return [*(Sample(p) for p in pairs), Sample(certain, special=True, note="certain and right, certain and wrong")]


binary_cross_entropy: OpFunction = elementwise(
    "binary_cross_entropy",
    _reference,
    "`-(target * log(x) + (1 - target) * log(1 - x))` with logarithms of at least -100.",
    inputs=("x", "target"),
    promotion="float",
    public=False,
    decompose=_decomposed,
    gradient=(_gradient, _gradient_of_target),
    samples=_samples,
    # Two products of logarithms of up to 3 on the samples, each within a few units.
    tolerance=Tolerance(12.0, floor=1.0),
    autocast=Autocast.FLOAT32,
)
