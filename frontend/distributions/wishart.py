"""The Wishart distribution of positive definite matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from polyhal import functions as ops
from polyhal.distributions import constraints, noise
from polyhal.distributions.covariance import CovarianceDistribution, half_log_det, only_matrix
from polyhal.distributions.gamma_gradient import log_gamma_rsample
from polyhal.distributions.parameters import as_parameters, expanded
from polyhal.functions import digamma
from polyhal.hal.errors import message
from polyhal.random import Generator
from polyhal.tensor import Tensor


class Wishart(CovarianceDistribution):
    """Sums of outer products of `df` normal vectors, with a covariance matrix, its inverse, or its lower Cholesky factor.

    `df` is above n - 1, the one given of `covariance_matrix`, `precision_matrix` and `scale_tril` has shape (..., n, n).
    Raises ValueError unless one is given.
    """

    arg_constraints: ClassVar = {
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
        "df": constraints.positive,
    }
    support = constraints.positive_definite
    has_rsample = True

    def __init__(
        self,
        df: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = only_matrix("Wishart", covariance_matrix, precision_matrix, scale_tril)
        matrix, df = as_parameters(matrix, df)
        if matrix.ndim < 2:
            raise ValueError(message("Wishart", f"{name} has {matrix.ndim} axes", expected="(..., n, n)"))
        batch = np.broadcast_shapes(df.shape, matrix.shape[:-2])
        self.df = expanded(df, batch)
        self.__dict__[name] = matrix = expanded(matrix, (*batch, *matrix.shape[-2:]))
        super().__init__(batch, matrix.shape[-2:], validate_args)
        n = self.event_shape[0]
        if self._checks() and not ops.all(self.df > n - 1).item():
            raise ValueError(message("Wishart", "df is too small", expected=f"df above {n - 1}"))
        self._factor(name, matrix)

    @property
    def _freedom(self) -> Tensor:
        return ops.reshape(self.df, (*self.df.shape, 1, 1))

    @property
    def mean(self) -> Tensor:
        return self._freedom * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self._freedom - self.event_shape[0] - 1
        return ops.where(factor > 0, factor, math.nan) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        diagonal = ops.diagonal(v, 0, -2, -1)
        return self._freedom * (ops.square(v) + ops.unsqueeze(diagonal, -1) * ops.unsqueeze(diagonal, -2))

    def rsample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        shape, n = self._extended_shape(sample_shape), self.event_shape[0]
        rows = Tensor(np.arange(n), dtype=self.df.dtype, device=self.df.device)
        half = 0.5 * (ops.unsqueeze(self.df, -1) - rows)
        diagonal = ops.exp(0.5 * (log_gamma_rsample(shape[:-1], half, generator) + math.log(2.0)))
        below = ops.tril(noise.standard_normal(shape, self.df, generator), -1)
        factor = ops.matmul(self.scale_tril, below + ops.diag_embed(diagonal))
        return ops.matmul(factor, ops.swapaxes(factor, -2, -1))

    def log_prob(self, value: Tensor) -> Tensor:
        value, n, df = self._value(value), self.event_shape[0], self.df
        trace = ops.sum(self.precision_matrix * value, axis=(-2, -1))
        log_norm = df * (0.5 * n * math.log(2.0) + half_log_det(self.scale_tril)) + ops.mvlgamma(0.5 * df, n)
        logabsdet: Tensor = ops.slogdet(value).logabsdet
        return 0.5 * (df - n - 1) * logabsdet - 0.5 * trace - log_norm

    def entropy(self) -> Tensor:
        n, df = self.event_shape[0], self.df
        scale = (n + 1) * (0.5 * n * math.log(2.0) + half_log_det(self.scale_tril))
        return scale + ops.mvlgamma(0.5 * df, n) - 0.5 * (df - n - 1) * mvdigamma(0.5 * df, n) + 0.5 * df * n


def mvdigamma(x: Tensor, n: int) -> Tensor:
    """Return the derivative of the logarithm of the multivariate gamma function of dimension `n`."""
    steps = Tensor(np.arange(n) / 2, dtype=x.dtype, device=x.device)
    return ops.sum(digamma(ops.unsqueeze(x, -1) - steps), axis=-1)
