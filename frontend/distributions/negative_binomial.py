"""The negative binomial distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from polyhal import functions as ops
from polyhal.distributions import constraints
from polyhal.distributions.counting import poisson_sample
from polyhal.distributions.gamma_sampling import gamma_sample
from polyhal.distributions.trials import TrialDistribution
from polyhal.functions import lgamma, logsigmoid
from polyhal.random import Generator
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor


class NegativeBinomial(TrialDistribution):
    """Number of successes, each with probability `probs`, before `total_count` failures."""

    arg_constraints: ClassVar = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self,
        total_count: Tensor,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        (count,) = self._set_odds(probs, logits, total_count)
        self.total_count = count.to(self._given.dtype)
        super().__init__(self._given.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * ops.exp(self.logits)

    @property
    def mode(self) -> Tensor:
        return ops.clip(ops.floor((self.total_count - 1) * ops.exp(self.logits)), 0, None)

    @property
    def variance(self) -> Tensor:
        return self.mean / ops.sigmoid(-self.logits)

    def sample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            rate = gamma_sample(shape, self.total_count, generator) * ops.exp(self.logits)
            return poisson_sample(shape, rate, generator)

    def log_prob(self, value: Tensor) -> Tensor:
        value, n = self._value(value), self.total_count
        unnormalized = n * logsigmoid(-self.logits) + value * logsigmoid(self.logits)
        normalization = -lgamma(n + value) + lgamma(1 + value) + lgamma(n)
        result: Tensor = unnormalized - ops.where(n + value == 0, 0.0, normalization)
        return result
