"""The Laplace distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence

from polyhal import functions as ops
from polyhal.distributions import noise
from polyhal.distributions.location_scale import LocationScale
from polyhal.random import Generator
from polyhal.tensor import Tensor


class Laplace(LocationScale):
    """The Laplace distribution around `loc`: exponential with mean `scale` on either side."""

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 2 * ops.square(self.scale)

    @property
    def stddev(self) -> Tensor:
        return math.sqrt(2) * self.scale

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.loc + self.scale * _quantile(noise.open_uniform(shape, self.loc, generator) - 0.5)

    def log_prob(self, value: Tensor) -> Tensor:
        return -ops.log(2 * self.scale) - ops.abs(self._value(value) - self.loc) / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        z = (self._value(value) - self.loc) / self.scale
        return 0.5 - 0.5 * ops.sign(z) * ops.expm1(-ops.abs(z))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * _quantile(value - 0.5)

    def entropy(self) -> Tensor:
        return 1 + ops.log(2 * self.scale)


def _quantile(centered: Tensor) -> Tensor:
    """Return the quantile of the standard distribution at `centered` + 1/2."""
    return -ops.sign(centered) * ops.log1p(-2 * ops.abs(centered))
