"""The Weibull distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from polyhal import functions as ops
from polyhal.distributions import constraints, noise
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.gumbel import EULER
from polyhal.distributions.parameters import (
    broadcast_parameters,
)
from polyhal.functions import lgamma
from polyhal.random import Generator
from polyhal.tensor import Tensor


class Weibull(Distribution):
    """The Weibull distribution: `scale` times a power 1 / `concentration` of a standard exponential variable."""

    arg_constraints: ClassVar = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, scale: Tensor, concentration: Tensor, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_parameters(scale, concentration)
        super().__init__(self.scale.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * ops.exp(lgamma(1 + 1 / self.concentration))

    @property
    def mode(self) -> Tensor:
        k = self.concentration
        above = ops.clip((k - 1) / k, 0, None)
        return self.scale * ops.pow(above, 1 / k)

    @property
    def variance(self) -> Tensor:
        inverse = 1 / self.concentration
        return ops.square(self.scale) * (ops.exp(lgamma(1 + 2 * inverse)) - ops.exp(2 * lgamma(1 + inverse)))

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        waiting = noise.standard_exponential(self._extended_shape(sample_shape), self.scale, generator)
        return self.scale * ops.pow(waiting, 1 / self.concentration)

    def log_prob(self, value: Tensor) -> Tensor:
        k = self.concentration
        log_ratio = ops.log(self._value(value)) - ops.log(self.scale)
        return ops.log(k) - ops.log(self.scale) + (k - 1) * log_ratio - ops.exp(k * log_ratio)

    def cdf(self, value: Tensor) -> Tensor:
        return -ops.expm1(-ops.pow(self._value(value) / self.scale, self.concentration))

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * ops.pow(-ops.log1p(-value), 1 / self.concentration)

    def entropy(self) -> Tensor:
        inverse = 1 / self.concentration
        return EULER * (1 - inverse) + ops.log(self.scale * inverse) + 1
