"""The generalized Pareto distribution of values beyond a threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from polyhal import functions as ops
from polyhal.distributions import constraints, noise
from polyhal.distributions.constraints import Constraint
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.parameters import broadcast_parameters
from polyhal.random import Generator
from polyhal.tensor import Tensor


class GeneralizedPareto(Distribution):
    """Values of at least `loc`, with a tail that `concentration` makes heavy (above 0), exponential (0) or bounded (below
    0)."""

    arg_constraints: ClassVar = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale, self.concentration = broadcast_parameters(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        exponential, k = self._shape()
        end = ops.where(
            ops.logical_and(k < 0, ops.logical_not(exponential)), self.loc - self.scale / k, math.inf
        ).detach()
        return constraints.interval(self.loc.detach(), end)

    def _shape(self) -> tuple[Tensor, Tensor]:
        """Return a mask of exponential tails, and the concentration, with 1 in place of theirs."""
        exponential = ops.abs(self.concentration) <= 1e-8
        return exponential, ops.where(exponential, 1.0, self.concentration)

    @property
    def mean(self) -> Tensor:
        k = self.concentration
        return ops.where(k < 1, self.loc + self.scale / ops.where(k < 1, 1 - k, 1.0), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        k = self.concentration
        low = ops.where(k < 0.5, k, 0.0)
        return ops.where(k < 0.5, ops.square(self.scale) / (ops.square(1 - low) * (1 - 2 * low)), math.inf)

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        return self.icdf(noise.unit_uniform(self._extended_shape(sample_shape), self.loc, generator))

    def _log_survival(self, value: Tensor) -> Tensor:
        exponential, k = self._shape()
        z = (value - self.loc) / self.scale
        return ops.where(exponential, -z, -ops.log1p(k * z) / k)

    def log_prob(self, value: Any) -> Tensor:
        value = self._value(value)
        return (1 + ops.where(self._shape()[0], 0.0, self.concentration)) * self._log_survival(value) - ops.log(
            self.scale
        )

    def cdf(self, value: Any) -> Tensor:
        return -ops.expm1(self._log_survival(self._value(value)))

    def icdf(self, value: Any) -> Tensor:
        exponential, k = self._shape()
        value = value if isinstance(value, Tensor) else Tensor(value, dtype=self.loc.dtype, device=self.loc.device)
        log_survival = ops.log1p(-value)
        return self.loc + self.scale * ops.where(exponential, -log_survival, ops.expm1(-k * log_survival) / k)

    def entropy(self) -> Tensor:
        return ops.log(self.scale) + self.concentration + 1
