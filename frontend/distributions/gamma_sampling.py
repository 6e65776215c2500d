"""Gamma variables in a fixed number of rejection rounds, so that no result is read back and steps can be captured.

Source: G. Marsaglia and W. W. Tsang, "A simple method for generating gamma variables", ACM TOMS 26(3), 2000. Shapes below 1
are raised by 1 and the result is multiplied by u^(1 / shape), in logarithms, since it can be smaller than the smallest
number.
"""

from __future__ import annotations

from polyhal import functions as ops
from polyhal.distributions.noise import open_uniform, standard_normal
from polyhal.distributions.parameters import expanded
from polyhal.random import Generator
from polyhal.tensor import Tensor

ROUNDS = 8
"""Number of rounds: one accepts with probability 0.951 (shape 1) or more, so all reject with 0.049^8 < 1e-10."""


def log_gamma_sample(shape: tuple[int, ...], concentration: Tensor, generator: Generator | None) -> Tensor:
    """Draw logarithms of gamma variables with rate 1, of `shape`; the mode of the proposal where all rounds reject."""
    alpha = expanded(concentration, shape)
    d = ops.where(alpha < 1, alpha + 1, alpha) - 1 / 3
    c = 1 / (3 * ops.sqrt(d))
    rounds = (ROUNDS, *shape)
    x, u = standard_normal(rounds, alpha, generator), open_uniform(rounds, alpha, generator)
    base = ops.clip(1 + c * x, 1e-30, None)
    log_v = 3 * ops.log(base)
    bound = 0.5 * ops.square(x) + d * (1 - base * base * base + log_v)
    accepted = ops.logical_and(1 + c * x > 0, ops.log(u) < bound)
    log_v = first_accepted(accepted, log_v, 0.0)
    boost = ops.log(open_uniform(shape, alpha, generator)) / ops.where(alpha < 1, alpha, 1.0)
    return ops.log(d) + log_v + ops.where(alpha < 1, boost, 0.0)


def gamma_sample(shape: tuple[int, ...], concentration: Tensor, generator: Generator | None) -> Tensor:
    """Draw gamma variables with rate 1."""
    return ops.exp(log_gamma_sample(shape, concentration, generator))


def first_accepted(accepted: Tensor, proposals: Tensor, fallback: Tensor | float) -> Tensor:
    """Return per element the proposal of the first round that accepts, or `fallback`; the first axis counts rounds."""
    result = fallback
    for i in reversed(range(accepted.shape[0])):
        result = ops.where(accepted[i], proposals[i], result)
    assert isinstance(result, Tensor)
    return result
