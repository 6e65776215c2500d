"""The multivariate normal distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from polyhal import functions as ops
from polyhal.distributions import constraints, noise
from polyhal.distributions.covariance import CovarianceDistribution, half_log_det, only_matrix
from polyhal.distributions.parameters import (
    as_parameters,
    expanded,
)
from polyhal.hal.errors import message
from polyhal.linalg import solve_triangular
from polyhal.random import Generator
from polyhal.tensor import Tensor


class MultivariateNormal(CovarianceDistribution):
    """The normal distribution of vectors, with a covariance matrix, its inverse, or its lower Cholesky factor.

    `loc` has shape (..., n), and the matrix (..., n, n). Raises ValueError unless exactly one of `covariance_matrix`,
    `precision_matrix` and `scale_tril` is given.
    """

    arg_constraints: ClassVar = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = only_matrix("MultivariateNormal", covariance_matrix, precision_matrix, scale_tril)
        loc, matrix = as_parameters(loc, matrix)
        if loc.ndim < 1 or matrix.ndim < 2:
            problem = f"loc has {loc.ndim} axes and {name} {matrix.ndim}"
            raise ValueError(message("MultivariateNormal", problem, expected="(..., n) and (..., n, n)"))
        batch, n = np.broadcast_shapes(loc.shape[:-1], matrix.shape[:-2]), loc.shape[-1]
        self.loc = expanded(loc, (*batch, n))
        self.__dict__[name] = matrix = expanded(matrix, (*batch, n, n))
        super().__init__(batch, (n,), validate_args)
        self._factor(name, matrix)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return ops.sum(ops.square(self.scale_tril), axis=-1)

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        normal = noise.standard_normal(self._extended_shape(sample_shape), self.loc, generator)
        return self.loc + ops.squeeze(ops.matmul(self.scale_tril, ops.unsqueeze(normal, -1)), -1)

    def log_prob(self, value: Tensor) -> Tensor:
        distance = mahalanobis(self.scale_tril, self._value(value) - self.loc)
        return -0.5 * (self.event_shape[0] * math.log(2 * math.pi) + distance) - half_log_det(self.scale_tril)

    def entropy(self) -> Tensor:
        return 0.5 * self.event_shape[0] * (1 + math.log(2 * math.pi)) + half_log_det(self.scale_tril)


def mahalanobis(scale_tril: Tensor, difference: Tensor) -> Tensor:
    """Return the squared norm of the solution z of `scale_tril` @ z = `difference`, for each vector along the last axis."""
    shape = np.broadcast_shapes(scale_tril.shape[:-1], difference.shape)
    factor = expanded(scale_tril, (*shape, shape[-1]))
    right = ops.unsqueeze(expanded(difference, shape), -1)
    z = solve_triangular(factor, right, upper=False)
    return ops.sum(ops.square(z), axis=(-2, -1))
