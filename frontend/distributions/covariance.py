"""Distributions with a covariance matrix, which is given directly, by its inverse, or by its Cholesky factor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyhal import functions as ops
from polyhal.creation import eye
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.parameters import DerivedParameter, expanded
from polyhal.hal.errors import message
from polyhal.linalg import cholesky, solve_triangular
from polyhal.tensor import Tensor


class CovarianceDistribution(Distribution):
    """Base of distributions that compute with the lower Cholesky factor of their covariance matrix."""

    def _factor(self, name: str, matrix: Tensor) -> None:
        """Compute the factor from the given matrix, by its name."""
        self.__dict__["scale_tril"] = _FACTORS[name](matrix)

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


def only_matrix(
    distribution: str, covariance_matrix: Tensor | None, precision_matrix: Tensor | None, scale_tril: Tensor | None
) -> tuple[str, Any]:
    """Return the name and value of the given matrix. Raises ValueError unless there is exactly one."""
    matrices = {
        "covariance_matrix": covariance_matrix,
        "precision_matrix": precision_matrix,
        "scale_tril": scale_tril,
    }
    given = [(name, m) for name, m in matrices.items() if m is not None]
    if len(given) != 1:
        expected = "exactly one of covariance_matrix, precision_matrix and scale_tril"
        raise ValueError(message(distribution, f"{len(given)} matrices", expected=expected))
    return given[0]


def half_log_det(scale_tril: Tensor) -> Tensor:
    """Return half of the logarithm of the determinant of the covariance matrix."""
    return ops.sum(ops.log(ops.diagonal(scale_tril, 0, -2, -1)), axis=-1)


def _factor_of_inverse(precision: Tensor) -> Tensor:
    """Return the lower Cholesky factor of the inverse of `precision`, from the factor of its reversal."""
    reversed_factor = cholesky(ops.flip(precision, axis=(-2, -1)))
    upper = ops.swapaxes(ops.flip(reversed_factor, axis=(-2, -1)), -2, -1)
    identity = expanded(eye(upper.shape[-1], dtype=upper.dtype, device=upper.device), upper.shape)
    result: Tensor = solve_triangular(upper, identity, upper=False)
    return result


_FACTORS: dict[str, Callable[[Tensor], Tensor]] = {
    "covariance_matrix": cholesky,
    "precision_matrix": _factor_of_inverse,
    "scale_tril": lambda factor: factor,
}
