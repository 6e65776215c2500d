"""The binomial distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from polyhal import functions as ops
from polyhal.distributions import constraints
from polyhal.distributions.constraints import Constraint
from polyhal.distributions.counting import binomial_sample
from polyhal.distributions.parameters import (
    expanded,
)
from polyhal.distributions.trials import TrialDistribution
from polyhal.functions import lgamma, softplus
from polyhal.hal.errors import message
from polyhal.random import Generator
from polyhal.tensor import Tensor


class Binomial(TrialDistribution):
    """Number of successes in `total_count` trials."""

    arg_constraints: ClassVar = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        (count,) = self._set_odds(probs, logits, total_count)
        self.total_count = count.to(self._given.dtype)
        super().__init__(self._given.shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ops.minimum(ops.floor((self.total_count + 1) * self.probs), self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return binomial_sample(shape, self.total_count.detach(), self.probs.detach(), generator)

    def log_prob(self, value: Tensor) -> Tensor:
        value, n = self._value(value), self.total_count
        ways = lgamma(n + 1) - lgamma(value + 1) - lgamma(n - value + 1)
        result: Tensor = ways + value * self.logits - n * softplus(self.logits)
        return result

    def entropy(self) -> Tensor:
        log_probs = self.log_prob(self.enumerate_support(False))
        return -ops.sum(ops.exp(log_probs) * log_probs, axis=0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        largest = int(ops.max(self.total_count).item())
        if not ops.all(self.total_count == largest).item():
            raise NotImplementedError(message("Binomial", "counts differ", expected="one total_count to enumerate"))
        values = Tensor(range(1 + largest), dtype=self._given.dtype, device=self._given.device)
        values = ops.reshape(values, (1 + largest, *(1 for _ in self.batch_shape)))
        return expanded(values, (1 + largest, *self.batch_shape)) if expand else values
