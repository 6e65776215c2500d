"""Distributions with batch axes as event axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from polyhal.distributions import constraints
from polyhal.distributions.constraints import Constraint
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.parameters import (
    sum_rightmost,
)
from polyhal.hal.errors import message
from polyhal.random import Generator
from polyhal.tensor import Tensor


class Independent(Distribution):
    """A distribution whose last `reinterpreted_batch_ndims` batch axes are axes of the event: log_prob sums over them.

    Raises ValueError if there are fewer axes.
    """

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None
    ) -> None:
        base = base_distribution
        cut = len(base.batch_shape) - reinterpreted_batch_ndims
        if cut < 0:
            problem = f"{reinterpreted_batch_ndims} axes of the batch shape {base.batch_shape}"
            raise ValueError(message("Independent", problem, expected=f"at most {len(base.batch_shape)}"))
        self.base_dist, self.reinterpreted_batch_ndims = base, reinterpreted_batch_ndims
        super().__init__(base.batch_shape[:cut], base.batch_shape[cut:] + base.event_shape, validate_args)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]  # here it depends on the base
        """True if the base has rsample."""
        return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        """True if the values of the base can be listed, and no axis was reinterpreted."""
        return not self.reinterpreted_batch_ndims and self.base_dist.has_enumerate_support

    @property
    def support(self) -> Constraint:
        base, count = self.base_dist.support, self.reinterpreted_batch_ndims
        return constraints.independent(base, count) if count else base

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        return self.base_dist.sample(sample_shape, generator=generator)

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        return self.base_dist.rsample(sample_shape, generator=generator)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims:
            raise self._missing("enumerate_support of a product of distributions")
        return self.base_dist.enumerate_support(expand)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Self:
        new = super().expand(batch_shape)
        added = self.event_shape[: self.reinterpreted_batch_ndims]
        new.base_dist = self.base_dist.expand((*new.batch_shape, *added))
        return new

    def __repr__(self) -> str:
        return f"Independent({self.base_dist!r}, {self.reinterpreted_batch_ndims})"
