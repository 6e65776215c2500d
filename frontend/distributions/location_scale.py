"""Distributions that are a standard one, shifted by `loc` and multiplied by `scale`."""

from __future__ import annotations

from typing import ClassVar

from polyhal.distributions import constraints
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.parameters import broadcast_parameters
from polyhal.tensor import Tensor


class LocationScale(Distribution):
    """Base of distributions of real numbers with their mode at `loc`, and with a positive `scale`."""

    arg_constraints: ClassVar = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Tensor, scale: Tensor | float, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_parameters(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mode(self) -> Tensor:
        return self.loc
