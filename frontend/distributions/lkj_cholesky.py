"""The LKJ distribution of correlation matrices, by their Cholesky factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from polyhal import functions as ops
from polyhal.distributions import constraints, noise
from polyhal.distributions.dirichlet import Beta
from polyhal.distributions.distribution import Distribution
from polyhal.distributions.parameters import as_parameters
from polyhal.functions import lgamma
from polyhal.hal.errors import message
from polyhal.random import Generator
from polyhal.tensor import Tensor


class LKJCholesky(Distribution):
    """Lower Cholesky factors (..., dim, dim) of correlation matrices; uniform matrices for `concentration` 1.

    Larger concentrations favour the identity. Samples have no gradients. Raises ValueError for `dim` below 2. Source: D.
    Lewandowski, D. Kurowicka, H. Joe, "Generating random correlation matrices based on vines and extended onion method", J.
    Multivariate Analysis 100, 2009.
    """

    arg_constraints: ClassVar = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(message("LKJCholesky", f"dim is {dim}", expected="2 or more"))
        self.dim = dim
        (self.concentration,) = as_parameters(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def sample(self, sample_shape: Sequence[int] = (), *, generator: Generator | None = None) -> Tensor:
        shape, concentration = self._extended_shape(sample_shape), self.concentration.detach()
        rows = self._constant(np.arange(self.dim))
        first = 0.5 * ops.clip(rows, 1, None)
        second = ops.unsqueeze(concentration + 0.5 * (self.dim - 2), -1) - 0.5 * ops.clip(rows - 1, 0, None)
        lengths = (
            Beta(ops.broadcast_to(first, second.shape), second, False).expand(shape[:-1]).sample(generator=generator)
        )
        normal = ops.tril(noise.standard_normal(shape, concentration, generator), -1)
        norm = ops.sqrt(ops.sum(ops.square(normal), axis=-1, keepdims=True))
        directions = normal / ops.where(norm > 0, norm, 1.0)
        below = ops.sqrt(ops.unsqueeze(lengths, -1)) * directions
        diagonal = ops.sqrt(ops.clip(1 - ops.sum(ops.square(below), axis=-1), 1e-37, None))
        return below + ops.diag_embed(diagonal)

    def log_prob(self, value: Tensor) -> Tensor:
        value, n, eta = self._value(value), self.dim - 1, self.concentration
        powers = 2 * (ops.unsqueeze(eta, -1) - 1) + self.dim - self._constant(np.arange(2, self.dim + 1))
        density = ops.sum(powers * ops.log(ops.diagonal(value, 0, -2, -1)[..., 1:]), axis=-1)
        alpha = eta + 0.5 * n
        normalization = 0.5 * n * math.log(math.pi) + ops.mvlgamma(alpha - 0.5, n) - lgamma(alpha) * n
        return density - normalization

    def _constant(self, values: np.ndarray) -> Tensor:
        return Tensor(values, dtype=self.concentration.dtype, device=self.concentration.device)
