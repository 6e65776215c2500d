"""The Poisson distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from polyhal import functions as ops
from polyhal.distributions import constraints
from polyhal.distributions.counting import poisson_sample
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.parameters import (
    as_parameters,
)
from polyhal.functions import lgamma, xlogy
from polyhal.random import Generator
from polyhal.tensor import Tensor


class Poisson(Distribution):
    """Number of events per unit of time, which occur at `rate`."""

    arg_constraints: ClassVar = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Tensor, validate_args: bool | None = None) -> None:
        (self.rate,) = as_parameters(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return ops.floor(self.rate)

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        return poisson_sample(self._extended_shape(sample_shape), self.rate.detach(), generator)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._value(value)
        return xlogy(value, self.rate) - self.rate - lgamma(value + 1)
