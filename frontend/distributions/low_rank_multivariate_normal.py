"""The multivariate normal distribution with a covariance of low rank plus a diagonal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from polyhal import functions as ops
from polyhal.creation import eye
from polyhal.distributions import constraints, noise
from polyhal.distributions.covariance import half_log_det
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.multivariate_normal import mahalanobis
from polyhal.distributions.parameters import as_parameters, expanded
from polyhal.hal.errors import message
from polyhal.linalg import cholesky
from polyhal.random import Generator
from polyhal.tensor import Tensor


class LowRankMultivariateNormal(Distribution):
    """The normal distribution of vectors with covariance cov_factor @ cov_factor.T + diag(cov_diag).

    `loc` and `cov_diag` have shape (..., n), `cov_factor` (..., n, rank). Densities cost O(n rank^2), by the Woodbury
    identity. Raises ValueError for other shapes.
    """

    arg_constraints: ClassVar = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None) -> None:
        loc, factor, diagonal = as_parameters(loc, cov_factor, cov_diag)
        if (
            loc.ndim < 1
            or factor.ndim < 2
            or factor.shape[-2] != loc.shape[-1]
            or diagonal.shape[-1:] != loc.shape[-1:]
        ):
            problem = f"loc {loc.shape}, cov_factor {factor.shape}, cov_diag {diagonal.shape}"
            raise ValueError(
                message("LowRankMultivariateNormal", problem, expected="(..., n), (..., n, rank), (..., n)")
            )
        batch = np.broadcast_shapes(loc.shape[:-1], factor.shape[:-2], diagonal.shape[:-1])
        self.loc = expanded(loc, (*batch, *loc.shape[-1:]))
        self.cov_factor = expanded(factor, (*batch, *factor.shape[-2:]))
        self.cov_diag = expanded(diagonal, (*batch, *loc.shape[-1:]))
        super().__init__(batch, loc.shape[-1:], validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return ops.sum(ops.square(self.cov_factor), axis=-1) + self.cov_diag

    @property
    def covariance_matrix(self) -> Tensor:
        """Covariance matrix, of shape batch_shape + (n, n)."""
        return ops.matmul(self.cov_factor, ops.swapaxes(self.cov_factor, -2, -1)) + ops.diag_embed(self.cov_diag)

    @property
    def scale_tril(self) -> Tensor:
        """Lower Cholesky factor of the covariance matrix."""
        result: Tensor = cholesky(self.covariance_matrix)
        return result

    @property
    def precision_matrix(self) -> Tensor:
        """Inverse of the covariance matrix."""
        return ops.cholesky_inverse(self.scale_tril)

    def _capacitance(self) -> tuple[Tensor, Tensor]:
        """Return diag^-1 @ factor, transposed, and the Cholesky factor of I + factor.T @ diag^-1 @ factor."""
        scaled = ops.swapaxes(self.cov_factor / ops.unsqueeze(self.cov_diag, -1), -2, -1)
        rank = self.cov_factor.shape[-1]
        inner = ops.matmul(scaled, self.cov_factor) + eye(rank, dtype=self.loc.dtype, device=self.loc.device)
        return scaled, cholesky(inner)

    def _log_det(self, factor: Tensor) -> Tensor:
        return 2 * half_log_det(factor) + ops.sum(ops.log(self.cov_diag), axis=-1)

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        shape = self._extended_shape(sample_shape)
        common = noise.standard_normal((*shape[:-1], self.cov_factor.shape[-1], 1), self.loc, generator)
        own = noise.standard_normal(shape, self.loc, generator)
        return self.loc + ops.squeeze(ops.matmul(self.cov_factor, common), -1) + ops.sqrt(self.cov_diag) * own

    def log_prob(self, value: Tensor) -> Tensor:
        difference = self._value(value) - self.loc
        scaled, factor = self._capacitance()
        inner = ops.squeeze(ops.matmul(scaled, ops.unsqueeze(difference, -1)), -1)
        distance = ops.sum(ops.square(difference) / self.cov_diag, axis=-1) - mahalanobis(factor, inner)
        return -0.5 * (self.event_shape[0] * math.log(2 * math.pi) + self._log_det(factor) + distance)

    def entropy(self) -> Tensor:
        return 0.5 * (self.event_shape[0] * (1 + math.log(2 * math.pi)) + self._log_det(self._capacitance()[1]))
