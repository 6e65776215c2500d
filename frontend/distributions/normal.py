"""The normal distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from polyhal import functions as ops
from polyhal.distributions import constraints, noise
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.parameters import (
    broadcast_parameters,
    ndtr,
)
from polyhal.functions import erfinv
from polyhal.random import Generator
from polyhal.tensor import Tensor


class Normal(Distribution):
    """The normal (Gaussian) distribution with mean `loc` and standard deviation `scale`.

    >>> round(polyhal.distributions.Normal(0.0, 1.0).log_prob(polyhal.tensor(0.0)).item(), 4)
    -0.9189
    """

    arg_constraints: ClassVar = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_parameters(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return ops.square(self.scale)

    def rsample(self, sample_shape: Any = (), *, generator: Generator | None = None) -> Tensor:
        return self.loc + noise.standard_normal(self._extended_shape(sample_shape), self.loc, generator) * self.scale

    def log_prob(self, value: Any) -> Tensor:
        z = (self._value(value) - self.loc) / self.scale
        return -0.5 * ops.square(z) - ops.log(self.scale) - 0.5 * math.log(2 * math.pi)

    def cdf(self, value: Any) -> Tensor:
        return ndtr((self._value(value) - self.loc) / self.scale)

    def icdf(self, value: Any) -> Tensor:
        return self.loc + self.scale * math.sqrt(2) * erfinv(2 * value - 1)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(2 * math.pi) + ops.log(self.scale)
