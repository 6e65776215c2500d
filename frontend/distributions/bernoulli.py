"""The Bernoulli distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from polyhal import functions as ops
from polyhal.distributions import constraints, noise
from polyhal.distributions.parameters import (
    expanded,
)
from polyhal.distributions.trials import TrialDistribution
from polyhal.functions import softplus
from polyhal.random import Generator
from polyhal.tensor import Tensor


class Bernoulli(TrialDistribution):
    """1 with probability `probs`, else 0."""

    arg_constraints: ClassVar = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        self._set_odds(probs, logits)
        super().__init__(self._given.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        likely = (self.probs >= 0.5).to(self.probs.dtype)
        return ops.where(self.probs == 0.5, math.nan, likely)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        probs = self.probs.detach()
        return (noise.unit_uniform(self._extended_shape(sample_shape), probs, generator) < probs).to(probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._value(value)
        result: Tensor = value * self.logits - softplus(self.logits)
        return result

    def entropy(self) -> Tensor:
        return softplus(self.logits) - self.probs * self.logits

    def enumerate_support(self, expand: bool = True) -> Tensor:
        given = self._given
        values = Tensor([0.0, 1.0], dtype=given.dtype, device=given.device)
        values = ops.reshape(values, (2, *(1 for _ in self.batch_shape)))
        return expanded(values, (2, *self.batch_shape)) if expand else values
