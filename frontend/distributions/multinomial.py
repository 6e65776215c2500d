"""The multinomial distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from polyhal import creation
from polyhal import functions as ops
from polyhal.distributions import constraints
from polyhal.distributions.binomial import Binomial
from polyhal.distributions.categorical import Categorical
from polyhal.distributions.constraints import Constraint
from polyhal.distributions.counting import binomial_sample
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.parameters import (
    expanded,
)
from polyhal.functions import lgamma
from polyhal.hal.errors import message
from polyhal.random import Generator
from polyhal.tensor import Tensor


class Multinomial(Distribution):
    """Counts of each value in `total_count` draws from a categorical distribution; `total_count` is an int."""

    arg_constraints: ClassVar = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(
        self, total_count: float = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        if not isinstance(total_count, int):
            problem = "total_count differs between distributions"
            raise NotImplementedError(message("Multinomial", problem, expected="an int"))
        self.total_count: int = total_count
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.multinomial(self.total_count)

    @property
    def probs(self) -> Tensor:
        """Probabilities, of shape batch_shape + event_shape."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """Normalized log-probabilities, of shape batch_shape + event_shape."""
        return self._categorical.logits

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        """Draw one binomial variable per value, out of the draws that remain after earlier values."""
        probs = self.probs.detach()
        shape = self._extended_shape(sample_shape)[:-1]
        left = creation.full_like(ops.sum(probs, axis=-1), float(self.total_count))
        left, rest = expanded(left, shape), 1 - ops.cumsum(probs, axis=-1) + probs
        counts: list[Tensor] = []
        for i in range(self.event_shape[0] - 1):
            share = ops.clip(probs[..., i] / ops.clip(rest[..., i], 1e-30, None), 0, 1)
            counts.append(binomial_sample(shape, left, share, generator))
            left = left - counts[-1]
        return ops.stack([*counts, left], axis=-1)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._value(value)
        logits = ops.where(ops.logical_and(value == 0, self.logits == -math.inf), 0.0, self.logits)
        ways = lgamma(ops.sum(value, axis=-1) + 1) - ops.sum(lgamma(value + 1), axis=-1)
        return ways + ops.sum(logits * value, axis=-1)

    def entropy(self) -> Tensor:
        n = self.total_count
        single = n * self._categorical.entropy()
        binomial = Binomial(n, probs=self.probs, validate_args=False)
        values = binomial.enumerate_support(expand=False)[1:]
        weights = ops.exp(binomial.log_prob(values))
        correction = ops.sum(ops.sum(weights * lgamma(values + 1), axis=0), axis=-1)
        return single - math.lgamma(n + 1) + correction

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Self:
        new = super().expand(batch_shape)
        new._categorical = self._categorical.expand(batch_shape)
        return new
