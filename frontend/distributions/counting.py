"""Poisson and binomial variables in a fixed number of steps, so that no result is read back and steps can be captured.

Means below 10 are drawn by inversion, which adds up probabilities until they exceed a uniform number. Others are drawn by
transformed rejection. Sources: W. Hörmann, "The transformed rejection method for generating Poisson random variables",
Insurance: Mathematics and Economics 12, 1993; "The generation of binomial random variates", J. Stat. Comput. Simul. 46, 1993.
"""

from __future__ import annotations

from collections.abc import Callable

from polyhal import functions as ops
from polyhal.distributions.gamma_sampling import first_accepted
from polyhal.distributions.noise import open_uniform, unit_uniform
from polyhal.distributions.parameters import expanded, xlog1py
from polyhal.functions import lgamma, xlogy
from polyhal.random import Generator
from polyhal.tensor import Tensor

ROUNDS = 20
"""Number of rounds: one accepts with probability 0.65 or more for means of at least 10, so all reject with less than 1e-9."""
LARGEST = 40
"""Maximum of inversion; a Poisson variable with mean 10 reaches it with probability below 1e-11."""
_SWITCH = 10.0


def poisson_sample(shape: tuple[int, ...], rate: Tensor, generator: Generator | None) -> Tensor:
    """Draw Poisson variables of `shape`, with the dtype of `rate`; the mode where all rounds reject."""
    rate = expanded(rate, shape)
    low = ops.clip(rate, None, _SWITCH)
    small = _inverted(shape, ops.exp(-low), lambda k: low / k, generator)
    mean = ops.clip(rate, _SWITCH, None)
    b = 0.931 + 2.53 * ops.sqrt(mean)
    a = -0.059 + 0.02483 * b
    u = unit_uniform((ROUNDS, *shape), rate, generator) - 0.5
    v = open_uniform((ROUNDS, *shape), rate, generator)
    us = 0.5 - ops.abs(u)
    k = ops.floor((2 * a / us + b) * u + mean + 0.43)
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    whole = ops.clip(k, 0, None)
    bound = whole * ops.log(mean) - mean - lgamma(whole + 1)
    fits = ops.log(v * inverse_alpha / (a / (us * us) + b)) <= bound
    squeezed = ops.logical_and(us >= 0.07, v <= 0.9277 - 3.6224 / (b - 2))
    inside = ops.logical_and(k >= 0, ops.logical_or(us >= 0.013, v <= us))
    accepted = ops.logical_or(squeezed, ops.logical_and(inside, fits))
    return ops.where(rate < _SWITCH, small, first_accepted(accepted, k, ops.floor(mean)))


def binomial_sample(shape: tuple[int, ...], total: Tensor, probs: Tensor, generator: Generator | None) -> Tensor:
    """Draw binomial variables of `shape`, with the dtype of `probs`; the mode where all rounds reject."""
    total, probs = expanded(total, shape), expanded(probs, shape)
    p = ops.minimum(probs, 1 - probs)
    is_small = total * p < _SWITCH
    low = ops.where(is_small, p, 0.0)
    odds = low / (1 - low)
    small = _inverted(
        shape, ops.exp(total * ops.log1p(-low)), lambda k: ops.clip(total - (k - 1), 0, None) / k * odds, generator
    )
    n, p = ops.where(is_small, 40.0, total), ops.where(is_small, 0.5, p)
    drawn = ops.where(is_small, ops.minimum(small, total), _rejected_binomial(shape, n, p, generator))
    return ops.where(probs > 0.5, total - drawn, drawn)


def _rejected_binomial(shape: tuple[int, ...], n: Tensor, p: Tensor, generator: Generator | None) -> Tensor:
    """Draw by algorithm BTRS, for means of at least 10 and probabilities up to 1/2."""
    spread = ops.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    center, v_r = n * p + 0.5, 0.92 - 4.2 / b
    alpha = (2.83 + 5.1 / b) * spread
    mode = ops.floor((n + 1) * p)
    u = unit_uniform((ROUNDS, *shape), p, generator) - 0.5
    v = open_uniform((ROUNDS, *shape), p, generator)
    us = 0.5 - ops.abs(u)
    k = ops.floor((2 * a / us + b) * u + center)
    inside = ops.logical_and(k >= 0, k <= n)
    whole = ops.minimum(ops.clip(k, 0, None), n)
    bound = _log_weight(whole, n, p) - _log_weight(mode, n, p)
    fits = ops.log(v * alpha / (a / (us * us) + b)) <= bound
    squeezed = ops.logical_and(us >= 0.07, v <= v_r)
    return first_accepted(ops.logical_and(inside, ops.logical_or(squeezed, fits)), k, mode)


def _log_weight(k: Tensor, n: Tensor, p: Tensor) -> Tensor:
    """Return the logarithm of the probability of `k`, up to a constant."""
    return xlogy(k, p) + xlog1py(n - k, -p) - lgamma(k + 1) - lgamma(n - k + 1)


def _inverted(
    shape: tuple[int, ...], start: Tensor, ratio: Callable[[float], Tensor], generator: Generator | None
) -> Tensor:
    """Draw by adding up probabilities: `start` for 0, and `ratio(k)` times the probability of k - 1 for k."""
    rest = unit_uniform(shape, start, generator) - start
    probability = start
    count = (rest >= 0).to(start.dtype)
    for k in range(1, LARGEST):
        probability = probability * ratio(float(k))
        rest = rest - probability
        count = count + (rest >= 0).to(start.dtype)
    return count
