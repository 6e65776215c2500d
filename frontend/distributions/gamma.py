"""The gamma distribution, and the distributions of powers and ratios of gamma variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from polyhal import functions as ops
from polyhal.distributions import constraints
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.gamma_gradient import log_gamma_rsample
from polyhal.distributions.parameters import (
    as_parameters,
    broadcast_parameters,
    expanded,
)
from polyhal.functions import digamma, lgamma, xlogy
from polyhal.functions import igamma as gammainc
from polyhal.hal import dtypes
from polyhal.random import Generator
from polyhal.tensor import Tensor


class Gamma(Distribution):
    """The gamma distribution of shape `concentration` and inverse scale `rate`."""

    arg_constraints: ClassVar = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, concentration: Tensor, rate: Tensor | float, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_parameters(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ops.clip((self.concentration - 1) / self.rate, 0, None)

    @property
    def variance(self) -> Tensor:
        return self.concentration / ops.square(self.rate)

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        drawn = (
            ops.exp(log_gamma_rsample(self._extended_shape(sample_shape), self.concentration, generator)) / self.rate
        )
        return ops.clip(drawn, float(dtypes.finfo(drawn.dtype).smallest_normal), None)

    def log_prob(self, value: Tensor) -> Tensor:
        value, a = self._value(value), self.concentration
        result: Tensor = xlogy(a, self.rate) + xlogy(a - 1, value) - self.rate * value - lgamma(a)
        return result

    def cdf(self, value: Tensor) -> Tensor:
        value = self._value(value)
        shape = np.broadcast_shapes(value.shape, self.batch_shape)
        return gammainc(expanded(self.concentration, shape), self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - ops.log(self.rate) + lgamma(a) + (1 - a) * digamma(a)


class Chi2(Gamma):
    """The chi-squared distribution with `df` degrees of freedom."""

    arg_constraints: ClassVar = {"df": constraints.positive}

    def __init__(self, df: Tensor, validate_args: bool | None = None) -> None:
        (self.df,) = as_parameters(df)
        super().__init__(0.5 * self.df, 0.5, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Self:
        new = super().expand(batch_shape)
        new.concentration = expanded(self.concentration, new.batch_shape)
        new.rate = expanded(self.rate, new.batch_shape)
        return new


class InverseGamma(Distribution):
    """The distribution of 1 / x for x from Gamma(concentration, rate)."""

    arg_constraints: ClassVar = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, concentration: Tensor, rate: Tensor, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_parameters(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        a = self.concentration
        return ops.where(a > 1, self.rate / ops.where(a > 1, a - 1, 1.0), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        a = ops.clip(self.concentration, 2, None)
        return ops.square(self.rate) / (ops.square(a - 1) * (a - 2))

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        return self.rate * ops.exp(
            -log_gamma_rsample(self._extended_shape(sample_shape), self.concentration, generator)
        )

    def log_prob(self, value: Tensor) -> Tensor:
        value, a = self._value(value), self.concentration
        result: Tensor = a * ops.log(self.rate) - (a + 1) * ops.log(value) - self.rate / value - lgamma(a)
        return result

    def cdf(self, value: Tensor) -> Tensor:
        value = self._value(value)
        shape = np.broadcast_shapes(value.shape, self.batch_shape)
        return 1 - gammainc(expanded(self.concentration, shape), self.rate / value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + ops.log(self.rate) + lgamma(a) - (1 + a) * digamma(a)


class FisherSnedecor(Distribution):
    """The F distribution: the ratio of two chi-squared variables, each divided by its degrees of freedom."""

    arg_constraints: ClassVar = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Tensor, df2: Tensor, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_parameters(df1, df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        n = ops.where(self.df2 <= 2, math.nan, self.df2)
        return n / (n - 2)

    @property
    def mode(self) -> Tensor:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return ops.where(self.df1 <= 2, math.nan, mode)

    @property
    def variance(self) -> Tensor:
        n = ops.where(self.df2 <= 4, math.nan, self.df2)
        return 2 * ops.square(n) * (self.df1 + n - 2) / (self.df1 * ops.square(n - 2) * (n - 4))

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        shape = self._extended_shape(sample_shape)
        above, below = (log_gamma_rsample(shape, df / 2, generator) for df in (self.df1, self.df2))
        return ops.exp(above - below + ops.log(self.df2 / self.df1))

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._value(value)
        half1, half2, ratio = self.df1 / 2, self.df2 / 2, self.df1 / self.df2
        beta = lgamma(half1 + half2) - lgamma(half1) - lgamma(half2)
        powers = half1 * ops.log(ratio) + (half1 - 1) * ops.log(value)
        return beta + powers - (half1 + half2) * ops.log1p(ratio * value)
