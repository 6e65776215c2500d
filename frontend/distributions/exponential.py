"""The exponential distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from polyhal import creation
from polyhal import functions as ops
from polyhal.distributions import constraints, noise
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.parameters import (
    as_parameters,
)
from polyhal.random import Generator
from polyhal.tensor import Tensor


class Exponential(Distribution):
    """The exponential distribution: waiting times of events with `rate` per unit of time."""

    arg_constraints: ClassVar = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, rate: Tensor, validate_args: bool | None = None) -> None:
        (self.rate,) = as_parameters(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return 1 / self.rate

    @property
    def mode(self) -> Tensor:
        return creation.zeros_like(self.rate)

    @property
    def stddev(self) -> Tensor:
        return 1 / self.rate

    @property
    def variance(self) -> Tensor:
        return ops.square(1 / self.rate)

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        return noise.standard_exponential(self._extended_shape(sample_shape), self.rate, generator) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        return ops.log(self.rate) - self.rate * self._value(value)

    def cdf(self, value: Tensor) -> Tensor:
        return -ops.expm1(-self.rate * self._value(value))

    def icdf(self, value: Tensor) -> Tensor:
        return -ops.log1p(-value) / self.rate

    def entropy(self) -> Tensor:
        return 1 - ops.log(self.rate)
