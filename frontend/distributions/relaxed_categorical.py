"""The relaxed categorical distribution of probabilities that are almost one-hot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from polyhal import functions as ops
from polyhal.distributions import constraints, noise
from polyhal.distributions.categorical import Categorical
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.parameters import as_parameters
from polyhal.distributions.transformed import TransformedDistribution
from polyhal.distributions.transforms import ExpTransform
from polyhal.functions import logsumexp
from polyhal.random import Generator
from polyhal.tensor import Tensor


class ExpRelaxedCategorical(Distribution):
    """Logarithms of RelaxedOneHotCategorical variables, which do not underflow."""

    arg_constraints: ClassVar = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self, temperature: Tensor, probs: Tensor | None = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._categorical = Categorical(probs, logits, validate_args)
        (self.temperature, _) = as_parameters(temperature, self._categorical._any_parameter())
        shape = self._categorical.logits.shape
        super().__init__(shape[:-1], shape[-1:], False)

    @property
    def logits(self) -> Tensor:
        """Normalized log-probabilities, of shape batch_shape + (n,)."""
        return self._categorical.logits

    @property
    def probs(self) -> Tensor:
        """Probabilities, of shape batch_shape + (n,)."""
        return self._categorical.probs

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Self:
        new = super().expand(batch_shape)
        new._categorical = self._categorical.expand(batch_shape)
        return new

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        gumbel = noise.standard_gumbel(self._extended_shape(sample_shape), self.logits, generator)
        scores = (self.logits + gumbel) / self.temperature
        return scores - logsumexp(scores, axis=-1, keepdims=True)

    def log_prob(self, value: Tensor) -> Tensor:
        n, value = self.event_shape[0], self._value(value)
        score = self.logits - value * self.temperature
        spread = ops.sum(score - logsumexp(score, axis=-1, keepdims=True), axis=-1)
        return spread + math.lgamma(n) + (n - 1) * ops.log(self.temperature)


class RelaxedOneHotCategorical(TransformedDistribution):
    """Probabilities that approach one-hot vectors as `temperature` falls, with gradients.

    Source: C. J. Maddison et al., "The Concrete distribution", ICLR 2017; E. Jang et al., "Categorical reparameterization with
    Gumbel-softmax", ICLR 2017.
    """

    arg_constraints: ClassVar = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex

    def __init__(
        self, temperature: Tensor, probs: Tensor | None = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Tensor:
        """Temperature: variables are one-hot in the limit 0."""
        result: Tensor = self.base_dist.temperature  # type: ignore[attr-defined]
        return result

    @property
    def logits(self) -> Tensor:
        """Normalized log-probabilities, of shape batch_shape + (n,)."""
        result: Tensor = self.base_dist.logits  # type: ignore[attr-defined]
        return result

    @property
    def probs(self) -> Tensor:
        """Probabilities, of shape batch_shape + (n,)."""
        result: Tensor = self.base_dist.probs  # type: ignore[attr-defined]
        return result
