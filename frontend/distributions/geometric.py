"""The geometric distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from polyhal import creation
from polyhal import functions as ops
from polyhal.distributions import constraints, noise
from polyhal.distributions.parameters import xlog1py
from polyhal.distributions.trials import TrialDistribution
from polyhal.functions import softplus
from polyhal.hal.errors import message
from polyhal.random import Generator
from polyhal.tensor import Tensor


class Geometric(TrialDistribution):
    """Number of failures before the first success, from 0. Raises ValueError for a probability of 0."""

    arg_constraints: ClassVar = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        self._set_odds(probs, logits)
        super().__init__(self._given.shape, validate_args=validate_args)
        if self._checks() and probs is not None and not ops.all(self.probs > 0).item():
            raise ValueError(message("Geometric", "a probability of 0", expected="probs above 0"))

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Tensor:
        return creation.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        probs = self.probs.detach()
        waiting = noise.standard_exponential(self._extended_shape(sample_shape), probs, generator)
        return ops.floor(waiting / -ops.log1p(-probs))

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._value(value)
        return xlog1py(value, -self.probs) + ops.log(self.probs)

    def entropy(self) -> Tensor:
        return (softplus(self.logits) - self.probs * self.logits) / self.probs
