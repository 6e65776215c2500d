"""Mixtures of distributions of one kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from polyhal import functions as ops
from polyhal.distributions.categorical import Categorical
from polyhal.distributions.constraints import Constraint
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.parameters import (
    expanded,
)
from polyhal.hal.errors import message
from polyhal.random import Generator
from polyhal.tensor import Tensor


class MixtureSameFamily(Distribution):
    """A mixture: `mixture_distribution` (Categorical) selects along the last batch axis of `component_distribution`.

    Raises ValueError if it is not a Categorical, or if the lengths differ.
    """

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        mixture, component = mixture_distribution, component_distribution
        if not isinstance(mixture, Categorical):
            raise ValueError(message("MixtureSameFamily", f"mixing by {mixture!r}", expected="a Categorical"))
        if not component.batch_shape or component.batch_shape[-1] != mixture.param_shape[-1]:
            problem = f"components of batch shape {component.batch_shape}"
            raise ValueError(message("MixtureSameFamily", problem, expected=f"(..., {mixture.param_shape[-1]})"))
        self._mixture_distribution, self._component_distribution = mixture, component
        super().__init__(component.batch_shape[:-1], component.event_shape, validate_args)

    @property
    def mixture_distribution(self) -> Categorical:
        """Distribution that selects a component."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """Components, along the last batch axis."""
        return self._component_distribution

    @property
    def support(self) -> Constraint:
        return self._component_distribution.support

    @property
    def _axis(self) -> int:
        """Axis of the components in their means."""
        return -1 - len(self.event_shape)

    @property
    def _weights(self) -> Tensor:
        probs = self._mixture_distribution.probs
        return ops.reshape(probs, (*probs.shape, *(1 for _ in self.event_shape)))

    @property
    def mean(self) -> Tensor:
        return ops.sum(self._weights * self._component_distribution.mean, axis=self._axis)

    @property
    def variance(self) -> Tensor:
        component = self._component_distribution
        within = ops.sum(self._weights * component.variance, axis=self._axis)
        deviation = component.mean - ops.unsqueeze(self.mean, self._axis)
        return within + ops.sum(self._weights * ops.square(deviation), axis=self._axis)

    def sample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        choice = self._mixture_distribution.expand(self.batch_shape).sample(sample_shape, generator=generator)
        drawn = self._component_distribution.sample(sample_shape, generator=generator)
        index = ops.reshape(choice, (*choice.shape, *(1 for _ in range(1 + len(self.event_shape)))))
        index = expanded(index, (*choice.shape, 1, *self.event_shape))
        return ops.squeeze(ops.take_along_axis(drawn, index, drawn.ndim + self._axis), self._axis)

    def log_prob(self, value: Any) -> Tensor:
        log_prob = self._component_distribution.log_prob(ops.unsqueeze(self._value(value), self._axis))
        return ops.logsumexp(log_prob + self._mixture_distribution.logits, axis=-1)

    def cdf(self, value: Any) -> Tensor:
        cdf = self._component_distribution.cdf(ops.unsqueeze(self._value(value), self._axis))
        return ops.sum(cdf * self._mixture_distribution.probs, axis=-1)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Self:
        new = super().expand(batch_shape)
        count = self._mixture_distribution.param_shape[-1]
        new._component_distribution = self._component_distribution.expand((*new.batch_shape, count))
        new._mixture_distribution = self._mixture_distribution.expand(new.batch_shape)
        return new

    def __repr__(self) -> str:
        return f"MixtureSameFamily({self._mixture_distribution!r}, {self._component_distribution!r})"
