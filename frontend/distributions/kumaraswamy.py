"""The Kumaraswamy distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from polyhal import functions as ops
from polyhal.distributions import constraints, noise
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.gumbel import EULER
from polyhal.distributions.parameters import (
    broadcast_parameters,
)
from polyhal.functions import digamma, lgamma
from polyhal.random import Generator
from polyhal.tensor import Tensor


class Kumaraswamy(Distribution):
    """The Kumaraswamy distribution on the unit interval, whose cdf is 1 - (1 - x^a)^b."""

    arg_constraints: ClassVar = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Tensor, concentration0: Tensor, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_parameters(concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    def _moment(self, n: int) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return b * ops.exp(lgamma(1 + n / a) + lgamma(b) - lgamma(1 + n / a + b))

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        ratio = ops.pow((a - 1) / (a * b - 1), 1 / a)
        has_mode = ops.logical_and(ops.logical_and(a >= 1, b >= 1), a * b > 1)
        return ops.where(has_mode, ratio, math.nan)

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - ops.square(self._moment(1))

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        return self.icdf(noise.open_uniform(self._extended_shape(sample_shape), self.concentration1, generator))

    def log_prob(self, value: Tensor) -> Tensor:
        a, b = self.concentration1, self.concentration0
        log_x = ops.log(self._value(value))
        return ops.log(a) + ops.log(b) + (a - 1) * log_x + (b - 1) * ops.log(-ops.expm1(a * log_x))

    def cdf(self, value: Tensor) -> Tensor:
        power = ops.pow(self._value(value), self.concentration1)
        return -ops.expm1(self.concentration0 * ops.log1p(-power))

    def icdf(self, value: Tensor) -> Tensor:
        rest = -ops.expm1(ops.log1p(-value) / self.concentration0)
        return ops.pow(rest, 1 / self.concentration1)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = digamma(b + 1) + EULER
        return (1 - 1 / b) + (1 - 1 / a) * harmonic - ops.log(a) - ops.log(b)
