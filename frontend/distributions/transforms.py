"""The maps of torch.distributions.transforms: element by element, and from vectors to probabilities."""

from __future__ import annotations

import math
from typing import Any

from polyhal import functions as ops
from polyhal.creation import zeros_like
from polyhal.distributions import constraints
from polyhal.distributions.joined_transforms import (
    CatTransform,
    CumulativeDistributionTransform,
    ReshapeTransform,
    StackTransform,
)
from polyhal.distributions.matrix_transforms import (
    CorrCholeskyTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
)
from polyhal.distributions.parameters import as_parameters, clamp_probs, sum_rightmost
from polyhal.distributions.transform import ComposeTransform, IndependentTransform, InverseTransform, Transform
from polyhal.functions import softplus
from polyhal.tensor import Tensor


class AffineTransform(Transform):
    """loc + scale * x; `event_dim` axes at the end make one value."""

    bijective = True

    def __init__(self, loc: float, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim
        self.domain = self.codomain = constraints.independent(constraints.real, event_dim)
        self.sign = ops.sign(scale) if isinstance(scale, Tensor) else (scale > 0) - (scale < 0)

    def __call__(self, x: Tensor) -> Tensor:
        result: Tensor = self.loc + self.scale * x
        return result

    def inverse(self, y: Tensor) -> Tensor:
        result: Tensor = (y - self.loc) / self.scale
        return result

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        scale = self.scale
        constant = ops.log(ops.abs(scale)) if isinstance(scale, Tensor) else math.log(abs(scale))
        return sum_rightmost(zeros_like(x) + constant, self._event_dim)


class ExpTransform(Transform):
    """`exp(x)`, from all numbers to positive ones."""

    domain, codomain, bijective, sign = constraints.real, constraints.positive, True, 1

    def __call__(self, x: Tensor) -> Tensor:
        return ops.exp(x)

    def inverse(self, y: Tensor) -> Tensor:
        return ops.log(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class PowerTransform(Transform):
    """x^exponent of positive numbers."""

    domain, codomain, bijective = constraints.positive, constraints.positive, True

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        (self.exponent,) = as_parameters(exponent)
        self.sign = ops.sign(self.exponent)

    def __call__(self, x: Tensor) -> Tensor:
        return ops.pow(x, self.exponent)

    def inverse(self, y: Tensor) -> Tensor:
        return ops.pow(y, 1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return ops.log(ops.abs(self.exponent * y / x))


class SigmoidTransform(Transform):
    """The logistic function."""

    domain, codomain, bijective, sign = constraints.real, constraints.unit_interval, True, 1

    def __call__(self, x: Tensor) -> Tensor:
        return ops.sigmoid(x)

    def inverse(self, y: Tensor) -> Tensor:
        y = clamp_probs(y)
        return ops.log(y) - ops.log1p(-y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x) - softplus(x)


class TanhTransform(Transform):
    """`tanh(x)`, from all numbers to numbers between -1 and 1."""

    domain, codomain, bijective, sign = constraints.real, constraints.interval(-1.0, 1.0), True, 1

    def __call__(self, x: Tensor) -> Tensor:
        return ops.tanh(x)

    def inverse(self, y: Tensor) -> Tensor:
        return ops.atanh(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2 * (math.log(2) - x - softplus(-2 * x))


class SoftplusTransform(Transform):
    """log(1 + exp(x))."""

    domain, codomain, bijective, sign = constraints.real, constraints.positive, True, 1

    def __call__(self, x: Tensor) -> Tensor:
        return softplus(x)

    def inverse(self, y: Tensor) -> Tensor:
        return ops.log(-ops.expm1(-y)) + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x)


class AbsTransform(Transform):
    """|x|, whose inverse takes the positive value."""

    domain, codomain = constraints.real, constraints.nonnegative

    def __call__(self, x: Tensor) -> Tensor:
        return ops.abs(x)

    def inverse(self, y: Tensor) -> Tensor:
        return y


class SoftmaxTransform(Transform):
    """softmax along the last axis; not bijective, the inverse takes logarithms."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def __call__(self, x: Tensor) -> Tensor:
        return ops.softmax(x, axis=-1)

    def inverse(self, y: Tensor) -> Tensor:
        return ops.log(y)


class StickBreakingTransform(Transform):
    """Vectors of n numbers to n + 1 probabilities: each number splits the rest of the earlier ones."""

    domain, codomain, bijective = constraints.real_vector, constraints.simplex, True

    def __call__(self, x: Tensor) -> Tensor:
        z = self._shares(x)
        left = ops.cumprod(1 - z, axis=-1)
        ones = zeros_like(z[..., :1]) + 1
        return ops.concat([z, ones], axis=-1) * ops.concat([ones, left], axis=-1)

    def inverse(self, y: Tensor) -> Tensor:
        head = y[..., :-1]
        left = ops.clip(1 - ops.cumsum(head, axis=-1), 1e-30, None)
        return ops.log(head) - ops.log(left) + ops.log(self._counts(head))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        shifted = x - ops.log(self._counts(x))
        return ops.sum(-shifted - softplus(-shifted) + ops.log(y[..., :-1]), axis=-1)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] - 1)

    def _shares(self, x: Tensor) -> Tensor:
        return ops.sigmoid(x - ops.log(self._counts(x)))

    @staticmethod
    def _counts(x: Tensor) -> Tensor:
        """Return the number of probabilities that remain to be divided at each number: n, n - 1, ..., 1."""
        return Tensor(range(x.shape[-1], 0, -1), dtype=x.dtype, device=x.device)


identity_transform = ComposeTransform([])

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "CatTransform",
    "ComposeTransform",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "ExpTransform",
    "IndependentTransform",
    "InverseTransform",
    "LowerCholeskyTransform",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "TanhTransform",
    "Transform",
    "identity_transform",
]
