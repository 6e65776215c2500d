"""The half-normal distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from polyhal import creation
from polyhal import functions as ops
from polyhal.distributions import constraints, noise
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.parameters import (
    as_parameters,
)
from polyhal.functions import erf, erfinv
from polyhal.random import Generator
from polyhal.tensor import Tensor


class HalfNormal(Distribution):
    """The absolute value of a normal variable with mean 0 and standard deviation `scale`."""

    arg_constraints: ClassVar = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, scale: Tensor, validate_args: bool | None = None) -> None:
        (self.scale,) = as_parameters(scale)
        super().__init__(self.scale.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self) -> Tensor:
        return creation.zeros_like(self.scale)

    @property
    def variance(self) -> Tensor:
        return ops.square(self.scale) * (1 - 2 / math.pi)

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        return ops.abs(noise.standard_normal(self._extended_shape(sample_shape), self.scale, generator)) * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._value(value)
        density = -0.5 * ops.square(value / self.scale) - ops.log(self.scale) + 0.5 * math.log(2 / math.pi)
        return ops.where(value >= 0, density, -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        return erf(self._value(value) / (self.scale * math.sqrt(2)))

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * math.sqrt(2) * erfinv(value)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(math.pi / 2) + ops.log(self.scale)
