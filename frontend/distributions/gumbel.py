"""The Gumbel distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from polyhal import functions as ops
from polyhal.distributions import constraints, noise
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.parameters import (
    broadcast_parameters,
)
from polyhal.random import Generator
from polyhal.tensor import Tensor


class Gumbel(Distribution):
    """The Gumbel distribution of maxima with mode `loc`."""

    arg_constraints: ClassVar = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_parameters(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * EULER

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return ops.square(self.stddev)

    def rsample(self, sample_shape: Any = (), *, generator: Generator | None = None) -> Tensor:
        return self.loc + self.scale * noise.standard_gumbel(self._extended_shape(sample_shape), self.loc, generator)

    def log_prob(self, value: Any) -> Tensor:
        z = (self.loc - self._value(value)) / self.scale
        return z - ops.exp(z) - ops.log(self.scale)

    def cdf(self, value: Any) -> Tensor:
        return ops.exp(-ops.exp((self.loc - self._value(value)) / self.scale))

    def icdf(self, value: Any) -> Tensor:
        return self.loc - self.scale * ops.log(-ops.log(value))

    def entropy(self) -> Tensor:
        return ops.log(self.scale) + (1 + EULER)


EULER = 0.57721566490153286
"""The Euler-Mascheroni constant."""
