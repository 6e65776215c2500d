"""Maps from unconstrained vectors and matrices to triangular and positive definite matrices."""

from __future__ import annotations

import math

from polyhal import functions as ops
from polyhal.creation import eye
from polyhal.distributions import constraints
from polyhal.distributions.transform import Transform
from polyhal.distributions.triangle import lower_to_vector, side, vector_to_lower
from polyhal.functions import softplus
from polyhal.hal import dtypes
from polyhal.linalg import cholesky
from polyhal.tensor import Tensor


class CorrCholeskyTransform(Transform):
    """Vectors of n (n - 1) / 2 numbers to the Cholesky factors (n, n) of correlation matrices.

    Each row is computed from partial correlations, tanh of the numbers, by stick breaking with a stick of length 1. Source:
    Stan reference manual, section 10.12.
    """

    domain, codomain, bijective = constraints.real_vector, constraints.corr_cholesky, True

    def __call__(self, x: Tensor) -> Tensor:
        epsilon = float(dtypes.finfo(x.dtype).eps)
        partial = vector_to_lower(ops.clip(ops.tanh(x), -1 + epsilon, 1 - epsilon), -1)
        left = ops.cumprod(ops.sqrt(1 - ops.square(partial)), axis=-1)
        identity = eye(partial.shape[-1], dtype=x.dtype, device=x.device)
        return (partial + identity) * _shifted(left)

    def inverse(self, y: Tensor) -> Tensor:
        left = _shifted(1 - ops.cumsum(ops.square(y), axis=-1))
        return ops.atanh(lower_to_vector(y, -1) / ops.sqrt(lower_to_vector(left, -1)))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        left = lower_to_vector(1 - ops.cumsum(ops.square(y), axis=-1), -2)
        sticks = 0.5 * ops.sum(ops.log(left), axis=-1)
        return sticks - 2 * ops.sum(x + softplus(-2 * x) - math.log(2.0), axis=-1)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        n = side(shape[-1], -1)
        return (*shape[:-1], n, n)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)


class LowerCholeskyTransform(Transform):
    """Square matrices to lower triangular ones with a positive diagonal: the exponential of the original one."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.lower_cholesky

    def __call__(self, x: Tensor) -> Tensor:
        return ops.tril(x, -1) + ops.diag_embed(ops.exp(ops.diagonal(x, 0, -2, -1)))

    def inverse(self, y: Tensor) -> Tensor:
        return ops.tril(y, -1) + ops.diag_embed(ops.log(ops.diagonal(y, 0, -2, -1)))


class PositiveDefiniteTransform(Transform):
    """Square matrices to symmetric positive definite ones, through their Cholesky factors."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.positive_definite

    def __call__(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return ops.matmul(factor, ops.swapaxes(factor, -2, -1))

    def inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inverse(cholesky(y))


def _shifted(x: Tensor) -> Tensor:
    """Shift columns to the right by one, after a column of ones."""
    return ops.concat([x[..., :1] * 0 + 1, x[..., :-1]], axis=-1)
