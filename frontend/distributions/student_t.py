"""Student's t-distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from polyhal import functions as ops
from polyhal.distributions import constraints, noise
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.gamma_gradient import log_gamma_rsample
from polyhal.distributions.parameters import (
    broadcast_parameters,
)
from polyhal.functions import digamma, lgamma
from polyhal.random import Generator
from polyhal.tensor import Tensor


class StudentT(Distribution):
    """Student's t-distribution with `df` degrees of freedom, shifted by `loc` and multiplied by `scale`."""

    arg_constraints: ClassVar = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self.df, self.loc, self.scale = broadcast_parameters(df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return ops.where(self.df <= 1, math.nan, self.loc)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        df = ops.clip(self.df, 2, None)
        return ops.where(self.df <= 1, math.nan, ops.square(self.scale) * df / (df - 2))

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        shape, half = self._extended_shape(sample_shape), self.df / 2
        log_ratio = log_gamma_rsample(shape, half, generator) - ops.log(half)
        normal = noise.standard_normal(shape, self.loc, generator)
        return self.loc + self.scale * normal * ops.exp(-0.5 * log_ratio)

    def log_prob(self, value: Tensor) -> Tensor:
        z, df = (self._value(value) - self.loc) / self.scale, self.df
        beta = 0.5 * math.log(math.pi) + lgamma(0.5 * df) - lgamma(0.5 * (df + 1))
        return -0.5 * (df + 1) * ops.log1p(ops.square(z) / df) - ops.log(self.scale) - 0.5 * ops.log(df) - beta

    def entropy(self) -> Tensor:
        df = self.df
        log_beta = lgamma(0.5 * df) + math.lgamma(0.5) - lgamma(0.5 * (df + 1))
        tail = 0.5 * (df + 1) * (digamma(0.5 * (df + 1)) - digamma(0.5 * df))
        return ops.log(self.scale) + tail + 0.5 * ops.log(df) + log_beta
