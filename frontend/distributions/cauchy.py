"""The Cauchy distribution and its absolute value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from polyhal import creation
from polyhal import functions as ops
from polyhal.distributions import constraints, noise
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.location_scale import LocationScale
from polyhal.distributions.parameters import (
    as_parameters,
)
from polyhal.random import Generator
from polyhal.tensor import Tensor


class Cauchy(LocationScale):
    """The Cauchy (Lorentz) distribution with median `loc` and half width at half maximum `scale`; it has no mean."""

    @property
    def mean(self) -> Tensor:
        return creation.full_like(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        return creation.full_like(self.loc, math.inf)

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        return self.icdf(noise.open_uniform(self._extended_shape(sample_shape), self.loc, generator))

    def log_prob(self, value: Tensor) -> Tensor:
        z = (self._value(value) - self.loc) / self.scale
        return -math.log(math.pi) - ops.log(self.scale) - ops.log1p(ops.square(z))

    def cdf(self, value: Tensor) -> Tensor:
        return ops.atan((self._value(value) - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return ops.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + ops.log(self.scale)


class HalfCauchy(Distribution):
    """The absolute value of a Cauchy variable around 0."""

    arg_constraints: ClassVar = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, scale: Tensor, validate_args: bool | None = None) -> None:
        (self.scale,) = as_parameters(scale)
        super().__init__(self.scale.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return creation.full_like(self.scale, math.inf)

    @property
    def mode(self) -> Tensor:
        return creation.zeros_like(self.scale)

    @property
    def variance(self) -> Tensor:
        return creation.full_like(self.scale, math.inf)

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        return self.icdf(noise.open_uniform(self._extended_shape(sample_shape), self.scale, generator))

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._value(value)
        density = math.log(2 / math.pi) - ops.log(self.scale) - ops.log1p(ops.square(value / self.scale))
        return ops.where(value >= 0, density, -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        return ops.atan(self._value(value) / self.scale) * (2 / math.pi)

    def icdf(self, value: Tensor) -> Tensor:
        return ops.tan(math.pi / 2 * value) * self.scale

    def entropy(self) -> Tensor:
        return math.log(2 * math.pi) + ops.log(self.scale)
