"""The normal distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence

from polyhal import functions as ops
from polyhal.distributions import noise
from polyhal.distributions.location_scale import LocationScale
from polyhal.distributions.parameters import (
    ndtr,
)
from polyhal.functions import erfinv
from polyhal.random import Generator
from polyhal.tensor import Tensor


class Normal(LocationScale):
    """The normal (Gaussian) distribution with mean `loc` and standard deviation `scale`.

    >>> round(polyhal.distributions.Normal(0.0, 1.0).log_prob(polyhal.tensor(0.0)).item(), 4)
    -0.9189
    """

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return ops.square(self.scale)

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        return self.loc + noise.standard_normal(self._extended_shape(sample_shape), self.loc, generator) * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        z = (self._value(value) - self.loc) / self.scale
        return -0.5 * ops.square(z) - ops.log(self.scale) - 0.5 * math.log(2 * math.pi)

    def cdf(self, value: Tensor) -> Tensor:
        return ndtr((self._value(value) - self.loc) / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * math.sqrt(2) * erfinv(2 * value - 1)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(2 * math.pi) + ops.log(self.scale)
