"""The von Mises distribution of angles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from polyhal import functions as ops
from polyhal import special
from polyhal.distributions import constraints, noise
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.gamma_sampling import first_accepted
from polyhal.distributions.parameters import broadcast_parameters
from polyhal.random import Generator
from polyhal.tensor import Tensor

ROUNDS = 20
"""Number of rounds: one accepts with probability 0.65 or more, so that all reject with probability below 1e-9."""


class VonMises(Distribution):
    """Angles in radians about `loc`; a large `concentration` is about 1 / variance. Samples have no gradients.

    Sampling never waits for the device. Source: D. J. Best and N. I. Fisher, "Efficient simulation of the von Mises
    distribution", Applied Statistics 28, 1979.
    """

    arg_constraints: ClassVar = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Tensor, concentration: Tensor, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_parameters(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """Mean direction."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """Circular variance: 1 - the length of the mean of unit vectors."""
        ratio: Tensor = special.i1e(self.concentration) / special.i0e(self.concentration)
        return 1 - ratio

    def log_prob(self, value: Tensor) -> Tensor:
        turned = ops.cos(self._value(value) - self.loc)
        log_norm = math.log(2 * math.pi) + ops.log(special.i0e(self.concentration))
        # cos - 1, because i0e is I0 / exp(concentration)
        return self.concentration * (turned - 1) - log_norm

    def sample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        shape = self._extended_shape(sample_shape)
        k, rounds = self.concentration.detach(), (ROUNDS, *shape)
        s = ops.sqrt(1 + 4 * ops.square(k))
        root = ops.sqrt(2 * (1 + s))
        rho = ops.clip(2 * k / (1 + s + root), 1e-30, None)
        short = (1 + 1 / (s + 2 * k) + root) / (1 + s + root)  # 1 - rho, without cancellation
        excess = ops.square(short) / (2 * rho)  # r - 1 of the wrapped Cauchy distribution
        half = 2 * ops.square(ops.cos(0.5 * math.pi * noise.unit_uniform(rounds, k, generator)))  # 1 + cos
        away = excess * (2 - half) / (excess + half)  # 1 - cos of the angle
        c = k * (excess + away)
        u = noise.open_uniform(rounds, k, generator)
        accepted = ops.log(c / u) + 1 - c >= 0
        angle = 2 * ops.asin(ops.sqrt(ops.clip(0.5 * first_accepted(accepted, away, 0.0), 0.0, 1.0)))
        side = ops.where(noise.unit_uniform(shape, k, generator) < 0.5, -1.0, 1.0)
        return ops.remainder(self.loc.detach() + side * angle + math.pi, 2 * math.pi) - math.pi
