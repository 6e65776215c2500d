"""The continuous Bernoulli distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from polyhal import functions as ops
from polyhal.distributions import constraints, noise
from polyhal.distributions.parameters import clamp_probs
from polyhal.distributions.trials import TrialDistribution
from polyhal.functions import softplus
from polyhal.random import Generator
from polyhal.tensor import Tensor


class ContinuousBernoulli(TrialDistribution):
    """Numbers in [0, 1] with a density in proportion to probs^x (1 - probs)^(1 - x).

    Between `lims` the constants are expanded about 1/2, where their formulas are 0 / 0.
    Source: G. Loaiza-Ganem and J. P. Cunningham, "The continuous Bernoulli", NeurIPS 2019.
    """

    arg_constraints: ClassVar = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._set_odds(probs, logits)
        self._lims = lims
        super().__init__(self._given.shape, validate_args=validate_args)

    @property
    def _p(self) -> Tensor:
        return clamp_probs(self.probs)

    def _off_centre(self) -> tuple[Tensor, Tensor]:
        """Return a mask of probabilities outside of `lims`, and the probabilities, with the lower limit in place of others."""
        p = self._p
        outside = ops.logical_or(p <= self._lims[0], p > self._lims[1])
        return outside, ops.where(outside, p, self._lims[0])

    def log_normalizer(self) -> Tensor:
        """Return the logarithm of the density's normalizing factor."""
        outside, p = self._off_centre()
        ratio = ops.log(ops.abs(ops.log1p(-p) - ops.log(p))) - ops.log(ops.abs(1 - 2 * p))
        x = ops.square(self._p - 0.5)
        return ops.where(outside, ratio, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    @property
    def mean(self) -> Tensor:
        outside, p = self._off_centre()
        exact = p / (2 * p - 1) + 1 / (ops.log1p(-p) - ops.log(p))
        x = self._p - 0.5
        return ops.where(outside, exact, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * ops.square(x)) * x)

    @property
    def variance(self) -> Tensor:
        outside, p = self._off_centre()
        exact = p * (p - 1) / ops.square(1 - 2 * p) + 1 / ops.square(ops.log1p(-p) - ops.log(p))
        x = ops.square(self._p - 0.5)
        return ops.where(outside, exact, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        return self.icdf(noise.unit_uniform(self._extended_shape(sample_shape), self._given, generator))

    def log_prob(self, value: Tensor) -> Tensor:
        value, logits = self._value(value), self.logits
        result: Tensor = value * logits - softplus(logits) + self.log_normalizer()
        return result

    def cdf(self, value: Tensor) -> Tensor:
        value = self._value(value)
        outside, p = self._off_centre()
        exact = (ops.pow(p, value) * ops.pow(1 - p, 1 - value) + p - 1) / (2 * p - 1)
        return ops.clip(ops.where(outside, exact, value), 0.0, 1.0)

    def icdf(self, value: Tensor) -> Tensor:
        outside, p = self._off_centre()
        value = value if isinstance(value, Tensor) else Tensor(value, dtype=p.dtype, device=p.device)
        exact = (ops.log1p(-p + value * (2 * p - 1)) - ops.log1p(-p)) / (ops.log(p) - ops.log1p(-p))
        return ops.where(outside, exact, value)

    def entropy(self) -> Tensor:
        log_zero = ops.log1p(-self._p)
        return self.mean * (log_zero - ops.log(self._p)) - self.log_normalizer() - log_zero
