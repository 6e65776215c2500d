"""Distributions over the values 0 to n - 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from polyhal import functions as ops
from polyhal.distributions import constraints, noise
from polyhal.distributions.constraints import Constraint
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.parameters import (
    DerivedParameter,
    as_parameters,
    expanded,
    logits_of,
    probs_of,
)
from polyhal.distributions.trials import one_of
from polyhal.hal import dtypes
from polyhal.hal.errors import message
from polyhal.random import Generator
from polyhal.tensor import Tensor


class Categorical(Distribution):
    """A value from 0 to n - 1, each with its probability: `probs` (normalized here) or `logits` along the last axis.

    Raises ValueError for probabilities without axes.

    >>> polyhal.distributions.Categorical(probs=polyhal.tensor([1.0, 3.0])).probs.tolist()
    [0.25, 0.75]
    """

    arg_constraints: ClassVar = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        name, value = one_of(self._name, probs, logits)
        (given,) = as_parameters(value)
        if given.ndim < 1:
            raise ValueError(message(self._name, f"{name} without axes", expected="one or more axes"))
        if name == "probs":
            self.probs = given / ops.sum(given, axis=-1, keepdims=True)
        else:
            self.logits = given - ops.logsumexp(given, axis=-1, keepdims=True)
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)

    @DerivedParameter
    def probs(self) -> Tensor:
        """Probabilities, derived from `logits`."""
        return probs_of(self.logits, False)

    @DerivedParameter
    def logits(self) -> Tensor:
        """Normalized log-probabilities, derived from `probs`."""
        return logits_of(self.probs, False)

    @property
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def param_shape(self) -> tuple[int, ...]:
        """Shape of the parameters, batch_shape + (n,)."""
        return (*self.batch_shape, self._num_events)

    @property
    def mean(self) -> Tensor:
        return ops.sum(self.probs, axis=-1) * math.nan

    @property
    def mode(self) -> Tensor:
        return ops.argmax(self.probs, axis=-1)

    @property
    def variance(self) -> Tensor:
        return ops.sum(self.probs, axis=-1) * math.nan

    def sample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        logits = ops.log(self.probs.detach())
        gumbel = noise.standard_gumbel((*self._extended_shape(sample_shape), self._num_events), logits, generator)
        return ops.argmax(logits + gumbel, axis=-1)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._value(value).to(dtypes.int64)
        shape = np.broadcast_shapes(value.shape, self.batch_shape)
        index = ops.unsqueeze(expanded(value, shape), -1)
        logits = expanded(self.logits, (*shape, self._num_events))
        return ops.squeeze(ops.take_along_axis(logits, index, -1), -1)

    def entropy(self) -> Tensor:
        smallest = float(dtypes.finfo(self.logits.dtype).min)
        return -ops.sum(ops.clip(self.logits, smallest, None) * self.probs, axis=-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        model = self.__dict__["probs"] if "probs" in self.__dict__ else self.__dict__["logits"]
        values = Tensor(range(self._num_events), dtype=dtypes.int64, device=model.device)
        values = ops.reshape(values, (self._num_events, *(1 for _ in self.batch_shape)))
        return expanded(values, (self._num_events, *self.batch_shape)) if expand else values
