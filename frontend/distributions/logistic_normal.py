"""The logistic normal distribution of probabilities."""

from __future__ import annotations

from typing import ClassVar

from polyhal.distributions import constraints
from polyhal.distributions.normal import Normal
from polyhal.distributions.transformed import TransformedDistribution
from polyhal.distributions.transforms import StickBreakingTransform
from polyhal.tensor import Tensor


class LogisticNormal(TransformedDistribution):
    """Vectors of n + 1 probabilities whose stick-breaking coordinates are n normal variables."""

    arg_constraints: ClassVar = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex

    def __init__(self, loc: Tensor, scale: Tensor, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args), StickBreakingTransform(), validate_args)

    @property
    def loc(self) -> Tensor:
        """Means of the normal variables, of shape batch_shape + (n,)."""
        return self.base_dist.mean

    @property
    def scale(self) -> Tensor:
        """Standard deviations of the normal variables, of shape batch_shape + (n,)."""
        return self.base_dist.stddev
