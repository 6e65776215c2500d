"""The categorical distribution with values as one-hot vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from polyhal import functions as ops
from polyhal.distributions import constraints
from polyhal.distributions.categorical import Categorical
from polyhal.distributions.distribution import Distribution
from polyhal.hal import dtypes
from polyhal.random import Generator
from polyhal.tensor import Tensor


class OneHotCategorical(Distribution):
    """One-hot vectors. The probability of each is the one of its position; parameters are those of Categorical."""

    arg_constraints: ClassVar = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(self, probs: Tensor | None = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args)

    @property
    def probs(self) -> Tensor:
        """Probabilities, of shape batch_shape + event_shape."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """Normalized log-probabilities, of shape batch_shape + event_shape."""
        return self._categorical.logits

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return self._one_hot(self._categorical.mode)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def _one_hot(self, index: Tensor) -> Tensor:
        positions = Tensor(range(self.event_shape[0]), dtype=dtypes.int64, device=index.device)
        return (ops.unsqueeze(index, -1) == positions).to(self.probs.dtype)

    def sample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        return self._one_hot(self._categorical.sample(sample_shape, generator=generator))

    def log_prob(self, value: Tensor) -> Tensor:
        return self._categorical.log_prob(ops.argmax(self._value(value), axis=-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._one_hot(self._categorical.enumerate_support(expand))

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Self:
        new = super().expand(batch_shape)
        new._categorical = self._categorical.expand(batch_shape)
        return new


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """OneHotCategorical whose samples pass gradients on to the probabilities unchanged (Bengio et al., 2013)."""

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        sample = super().sample(sample_shape, generator=generator)
        return sample + (self.probs - self.probs.detach())
