"""Distributions of a transformed variable, such as LogNormal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from polyhal import functions as ops
from polyhal.distributions import constraints
from polyhal.distributions.constraints import Constraint
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.independent import Independent
from polyhal.distributions.normal import Normal
from polyhal.distributions.parameters import (
    sum_rightmost,
)
from polyhal.distributions.transform import ComposeTransform, Transform
from polyhal.distributions.transforms import ExpTransform
from polyhal.hal.errors import message
from polyhal.random import Generator
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor


class TransformedDistribution(Distribution):
    """The distribution of f(x), for x from `base_distribution` and f a Transform or a list of them, the first first.

    Raises ValueError if f takes events of more axes than x has.
    """

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | Sequence[Transform],
        validate_args: bool | None = None,
    ) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        self._whole = whole = ComposeTransform(self.transforms)
        base_shape = base_distribution.batch_shape + base_distribution.event_shape
        base_event = len(base_distribution.event_shape)
        missing = whole.domain.event_dim - base_event
        if missing > len(base_distribution.batch_shape):
            problem = f"the base has shape {base_shape}"
            raise ValueError(
                message("TransformedDistribution", problem, expected=f"{whole.domain.event_dim} axes or more")
            )
        self.base_dist = Independent(base_distribution, missing) if missing > 0 else base_distribution
        self._event_dim = max(base_event, whole.codomain.event_dim)
        shape = whole.forward_shape(base_shape)
        cut = len(shape) - self._event_dim
        super().__init__(shape[:cut], shape[cut:], validate_args)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]  # here it depends on the base
        """True if the base has rsample."""
        return self.base_dist.has_rsample

    @property
    def support(self) -> Constraint:
        support = self.transforms[-1].codomain if self.transforms else self.base_dist.support
        added = self._event_dim - support.event_dim
        return constraints.independent(support, added) if added > 0 else support

    def sample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        with no_grad():
            return self._whole(self.base_dist.sample(sample_shape, generator=generator))

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        return self._whole(self.base_dist.rsample(sample_shape, generator=generator))

    def log_prob(self, value: Tensor) -> Tensor:
        y = self._value(value)
        event_dim, total = self._event_dim, None
        for transform in reversed(self.transforms):
            x = transform.inverse(y)
            event_dim += transform.domain.event_dim - transform.codomain.event_dim
            term = sum_rightmost(transform.log_abs_det_jacobian(x, y), event_dim - transform.domain.event_dim)
            total, y = term if total is None else total + term, x
        base = sum_rightmost(self.base_dist.log_prob(y), event_dim - len(self.base_dist.event_shape))
        return base if total is None else base - total

    def cdf(self, value: Tensor) -> Tensor:
        cdf, sign = self.base_dist.cdf(self._whole.inverse(self._value(value))), self._monotonic_sign()
        return sign * (cdf - 0.5) + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return self._whole(self.base_dist.icdf(self._monotonic_sign() * (value - 0.5) + 0.5))

    def _monotonic_sign(self) -> int | Tensor:
        if any(isinstance(t.sign, int) and t.sign == 0 for t in self.transforms):
            raise self._missing("the cdf of a transform that is not monotonic")
        return self._whole.sign

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Self:
        new = super().expand(batch_shape)
        shape = self._whole.inverse_shape((*new.batch_shape, *self.event_shape))
        new.base_dist = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        return new

    def __repr__(self) -> str:
        return f"{self._name}({self.base_dist!r}, {self.transforms!r})"


class LogNormal(TransformedDistribution):
    """The distribution of exp(x) for a normal x with mean `loc` and standard deviation `scale`."""

    arg_constraints: ClassVar = {"loc": constraints.real, "scale": constraints.positive}
    base_dist: Normal

    def __init__(self, loc: Tensor, scale: Tensor, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args), ExpTransform(), validate_args)

    @property
    def loc(self) -> Tensor:
        """Mean of the logarithm."""
        return self.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """Standard deviation of the logarithm."""
        return self.base_dist.scale

    @property
    def mean(self) -> Tensor:
        return ops.exp(self.loc + ops.square(self.scale) / 2)

    @property
    def mode(self) -> Tensor:
        return ops.exp(self.loc - ops.square(self.scale))

    @property
    def variance(self) -> Tensor:
        squared = ops.square(self.scale)
        return ops.expm1(squared) * ops.exp(2 * self.loc + squared)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc
