"""The uniform distribution on an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from polyhal import functions as ops
from polyhal.distributions import constraints, noise
from polyhal.distributions.constraints import Constraint
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.parameters import (
    broadcast_parameters,
)
from polyhal.hal.errors import message
from polyhal.random import Generator
from polyhal.tensor import Tensor


class Uniform(Distribution):
    """The uniform distribution on [low, high). Raises ValueError if low is not below high."""

    arg_constraints: ClassVar = {"low": constraints.real, "high": constraints.real}
    has_rsample = True

    def __init__(self, low: Tensor, high: Tensor, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_parameters(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        if self._checks() and not ops.all(self.low < self.high).item():
            raise ValueError(message("Uniform", "low is not below high", expected="low < high"))

    @property
    def support(self) -> Constraint:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return self.low * math.nan

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / math.sqrt(12)

    @property
    def variance(self) -> Tensor:
        return ops.square(self.high - self.low) / 12

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        uniform = noise.unit_uniform(self._extended_shape(sample_shape), self.low, generator)
        return self.low + uniform * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._value(value)
        inside = ops.logical_and(self.low <= value, value < self.high)
        return ops.where(inside, -ops.log(self.high - self.low), -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        return ops.clip((self._value(value) - self.low) / (self.high - self.low), 0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        result: Tensor = value * (self.high - self.low) + self.low
        return result

    def entropy(self) -> Tensor:
        return ops.log(self.high - self.low)
