"""The relaxed Bernoulli distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from polyhal import functions as ops
from polyhal.distributions import constraints, noise
from polyhal.distributions.parameters import (
    as_parameters,
    clamp_probs,
)
from polyhal.distributions.trials import TrialDistribution
from polyhal.functions import softplus
from polyhal.random import Generator
from polyhal.tensor import Tensor


class RelaxedBernoulli(TrialDistribution):
    """Numbers between 0 and 1 that approach Bernoulli variables as `temperature` falls, with gradients.

    Source: C. J. Maddison et al., "The Concrete distribution", ICLR 2017.
    """

    arg_constraints: ClassVar = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, temperature: Tensor, probs: Tensor | None = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._set_odds(probs, logits)
        (self.temperature, _) = as_parameters(temperature, self._given)
        super().__init__(self._given.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        logits = self.logits
        u = noise.open_uniform(self._extended_shape(sample_shape), logits, generator)
        return clamp_probs(ops.sigmoid((ops.log(u) - ops.log1p(-u) + logits) / self.temperature))

    def log_prob(self, value: Tensor) -> Tensor:
        y = clamp_probs(self._value(value))
        x = ops.log(y) - ops.log1p(-y)
        difference = self.logits - x * self.temperature
        density = ops.log(self.temperature) + difference - 2 * softplus(difference)
        return density + softplus(x) + softplus(-x)
