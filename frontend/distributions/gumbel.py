"""The Gumbel distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence

from polyhal import functions as ops
from polyhal.distributions import noise
from polyhal.distributions.location_scale import LocationScale
from polyhal.random import Generator
from polyhal.tensor import Tensor


class Gumbel(LocationScale):
    """The Gumbel distribution of maxima with mode `loc`."""

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * EULER

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return ops.square(self.stddev)

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        return self.loc + self.scale * noise.standard_gumbel(self._extended_shape(sample_shape), self.loc, generator)

    def log_prob(self, value: Tensor) -> Tensor:
        z = (self.loc - self._value(value)) / self.scale
        return z - ops.exp(z) - ops.log(self.scale)

    def cdf(self, value: Tensor) -> Tensor:
        return ops.exp(-ops.exp((self.loc - self._value(value)) / self.scale))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * ops.log(-ops.log(value))

    def entropy(self) -> Tensor:
        return ops.log(self.scale) + (1 + EULER)


EULER = 0.57721566490153286
"""Euler-Mascheroni constant."""
