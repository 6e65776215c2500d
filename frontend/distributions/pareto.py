"""The Pareto distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from polyhal import functions as ops
from polyhal.distributions import constraints, noise
from polyhal.distributions.constraints import Constraint
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.parameters import (
    broadcast_parameters,
)
from polyhal.random import Generator
from polyhal.tensor import Tensor


class Pareto(Distribution):
    """The Pareto distribution of type 1: values of at least `scale`, with tail exponent `alpha`."""

    arg_constraints: ClassVar = {"scale": constraints.positive, "alpha": constraints.positive}
    has_rsample = True

    def __init__(self, scale: Tensor, alpha: Tensor, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_parameters(scale, alpha)
        super().__init__(self.scale.shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        a = ops.clip(self.alpha, 1, None)
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = ops.clip(self.alpha, 2, None)
        return ops.square(self.scale) * a / (ops.square(a - 1) * (a - 2))

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        waiting = noise.standard_exponential(self._extended_shape(sample_shape), self.scale, generator)
        return self.scale * ops.exp(waiting / self.alpha)

    def log_prob(self, value: Tensor) -> Tensor:
        log_ratio = ops.log(self._value(value) / self.scale)
        return ops.log(self.alpha / self.scale) - (self.alpha + 1) * log_ratio

    def cdf(self, value: Tensor) -> Tensor:
        return -ops.expm1(-self.alpha * ops.log(self._value(value) / self.scale))

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * ops.exp(-ops.log1p(-value) / self.alpha)

    def entropy(self) -> Tensor:
        return ops.log(self.scale / self.alpha) + (1 + 1 / self.alpha)
