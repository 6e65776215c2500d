"""The multivariate normal distribution."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from polyhal import functions as ops
from polyhal.creation import eye
from polyhal.distributions import constraints, noise
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.parameters import (
    DerivedParameter,
    as_parameters,
    expanded,
)
from polyhal.hal.errors import message
from polyhal.linalg import cholesky, solve_triangular
from polyhal.random import Generator
from polyhal.tensor import Tensor


class MultivariateNormal(Distribution):
    """The normal distribution of vectors, with a covariance matrix, its inverse, or its lower Cholesky factor.

    `loc` has shape (..., n), the one given of `covariance_matrix`, `precision_matrix` and `scale_tril` (..., n, n). Raises
    ValueError unless one is given.
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
        loc: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        matrices = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        given = {name: m for name, m in matrices.items() if m is not None}
        if len(given) != 1:
            problem = f"{len(given)} matrices"
            expected = "exactly one of covariance_matrix, precision_matrix and scale_tril"
            raise ValueError(message("MultivariateNormal", problem, expected=expected))
        ((name, matrix),) = given.items()
        loc, matrix = as_parameters(loc, matrix)
        if loc.ndim < 1 or matrix.ndim < 2:
            problem = f"loc has {loc.ndim} axes and {name} {matrix.ndim}"
            raise ValueError(message("MultivariateNormal", problem, expected="(..., n) and (..., n, n)"))
        batch, n = np.broadcast_shapes(loc.shape[:-1], matrix.shape[:-2]), loc.shape[-1]
        self.loc = expanded(loc, (*batch, n))
        self.__dict__[name] = matrix = expanded(matrix, (*batch, n, n))
        super().__init__(batch, (n,), validate_args)
        self.__dict__["scale_tril"] = scale_tril_of(name, matrix)

    @DerivedParameter
    def scale_tril(self) -> Tensor:
        """Lower Cholesky factor of the covariance matrix."""
        raise AttributeError("scale_tril")

    @DerivedParameter
    def covariance_matrix(self) -> Tensor:
        """Covariance matrix, of shape batch_shape + (n, n)."""
        return ops.matmul(self.scale_tril, ops.swapaxes(self.scale_tril, -2, -1))

    @DerivedParameter
    def precision_matrix(self) -> Tensor:
        """Inverse of the covariance matrix."""
        return ops.cholesky_inverse(self.scale_tril)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return ops.sum(ops.square(self.scale_tril), axis=-1)

    def rsample(self, sample_shape: Any = (), *, generator: Generator | None = None) -> Tensor:
        normal = noise.standard_normal(self._extended_shape(sample_shape), self.loc, generator)
        return self.loc + ops.squeeze(ops.matmul(self.scale_tril, ops.unsqueeze(normal, -1)), -1)

    def log_prob(self, value: Any) -> Tensor:
        distance = mahalanobis(self.scale_tril, self._value(value) - self.loc)
        return -0.5 * (self.event_shape[0] * math.log(2 * math.pi) + distance) - half_log_det(self.scale_tril)

    def entropy(self) -> Tensor:
        return 0.5 * self.event_shape[0] * (1 + math.log(2 * math.pi)) + half_log_det(self.scale_tril)


def mahalanobis(scale_tril: Tensor, difference: Tensor) -> Tensor:
    """Squared norm of the solution z of `scale_tril` @ z = `difference`, for each vector along the last axis."""
    shape = np.broadcast_shapes(scale_tril.shape[:-1], difference.shape)
    factor = expanded(scale_tril, (*shape, shape[-1]))
    right = ops.unsqueeze(expanded(difference, shape), -1)
    z = solve_triangular(factor, right, upper=False)
    return ops.sum(ops.square(z), axis=(-2, -1))


def half_log_det(scale_tril: Tensor) -> Tensor:
    """Half of the logarithm of the determinant of the covariance matrix."""
    return ops.sum(ops.log(ops.diagonal(scale_tril, 0, -2, -1)), axis=-1)


def _factor_of_inverse(precision: Tensor) -> Tensor:
    """Lower Cholesky factor of the inverse of `precision`, from the factor of its reversal."""
    reversed_factor = cholesky(ops.flip(precision, axis=(-2, -1)))
    upper = ops.swapaxes(ops.flip(reversed_factor, axis=(-2, -1)), -2, -1)
    identity = expanded(eye(upper.shape[-1], dtype=upper.dtype, device=upper.device), upper.shape)
    result: Tensor = solve_triangular(upper, identity, upper=False)
    return result


def scale_tril_of(name: str, matrix: Tensor) -> Tensor:
    """Lower Cholesky factor of the covariance matrix, from this, its inverse or the factor itself, by its name."""
    return _FACTORS[name](matrix)


_FACTORS: dict[str, Callable[[Tensor], Tensor]] = {
    "covariance_matrix": cholesky,
    "precision_matrix": _factor_of_inverse,
    "scale_tril": lambda factor: factor,
}
