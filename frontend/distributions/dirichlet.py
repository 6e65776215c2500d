"""The Dirichlet distribution, and Beta, its case of two values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from polyhal import functions as ops
from polyhal.distributions import constraints
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.gamma_gradient import log_gamma_rsample
from polyhal.distributions.parameters import (
    as_parameters,
    broadcast_parameters,
    xlog1py,
)
from polyhal.functions import digamma, lgamma, xlogy
from polyhal.hal import dtypes
from polyhal.hal.errors import message
from polyhal.random import Generator
from polyhal.tensor import Tensor


class Dirichlet(Distribution):
    """The Dirichlet distribution of probabilities along the last axis.

    Raises ValueError for a concentration without axes.
    """

    arg_constraints: ClassVar = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        (self.concentration,) = as_parameters(concentration)
        if self.concentration.ndim < 1:
            raise ValueError(message("Dirichlet", "concentration without axes", expected="one or more axes"))
        shape = self.concentration.shape
        super().__init__(shape[:-1], shape[-1:], validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / ops.sum(self.concentration, axis=-1, keepdims=True)

    @property
    def mode(self) -> Tensor:
        above = ops.clip(self.concentration - 1, 0, None)
        mode = above / ops.sum(above, axis=-1, keepdims=True)
        largest = ops.argmax(self.concentration, axis=-1, keepdims=True)
        positions = Tensor(range(self.event_shape[0]), dtype=dtypes.int64, device=largest.device)
        corner = (largest == positions).to(mode.dtype)
        return ops.where(ops.all(self.concentration < 1, axis=-1, keepdims=True), corner, mode)

    @property
    def variance(self) -> Tensor:
        total = ops.sum(self.concentration, axis=-1, keepdims=True)
        return self.concentration * (total - self.concentration) / (ops.square(total) * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return ops.softmax(log_gamma_rsample(shape, self.concentration, generator), axis=-1)

    def log_prob(self, value: Tensor) -> Tensor:
        a = self.concentration
        normalization = lgamma(ops.sum(a, axis=-1)) - ops.sum(lgamma(a), axis=-1)
        return ops.sum(xlogy(a - 1, self._value(value)), axis=-1) + normalization

    def entropy(self) -> Tensor:
        k, a = self.event_shape[0], self.concentration
        total = ops.sum(a, axis=-1)
        normalization = ops.sum(lgamma(a), axis=-1) - lgamma(total)
        return normalization - (k - total) * digamma(total) - ops.sum((a - 1) * digamma(a), axis=-1)


class Beta(Distribution):
    """The beta distribution on the unit interval."""

    arg_constraints: ClassVar = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Tensor, concentration0: Tensor, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_parameters(concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        inside = ops.clip(a - 1, 0, None) / (ops.clip(a - 1, 0, None) + ops.clip(b - 1, 0, None))
        end = (a >= b).to(a.dtype)
        return ops.where(ops.logical_and(a < 1, b < 1), end, inside)

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (ops.square(total) * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        shape = self._extended_shape(sample_shape)
        first, second = (log_gamma_rsample(shape, a, generator) for a in (self.concentration1, self.concentration0))
        return ops.sigmoid(first - second)

    def log_prob(self, value: Tensor) -> Tensor:
        value, a, b = self._value(value), self.concentration1, self.concentration0
        return xlogy(a - 1, value) + xlog1py(b - 1, -value) + lgamma(a + b) - lgamma(a) - lgamma(b)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        normalization = lgamma(a) + lgamma(b) - lgamma(a + b)
        return normalization - (2 - a - b) * digamma(a + b) - (a - 1) * digamma(a) - (b - 1) * digamma(b)
