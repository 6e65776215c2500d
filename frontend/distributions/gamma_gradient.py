"""Gamma variables whose gradient flows to their shape, by implicit reparametrization.

The cumulative probability of a sample is constant when the shape `a` changes, F(z; a) = const, so dz/da = -(dF/da) / p(z).
With t = z exp(-s) in the integral of dF/da = int_0^z p(t) (log t - digamma(a)) dt, every factor of p(z) cancels:

    d log z / da = -int_0^inf exp(z (1 - exp(-s)) - a s) (log z - s - digamma(a)) ds

and over the other tail, with t = z exp(s), int_0^inf exp(a s - z (exp(s) - 1)) (log z + s - digamma(a)) ds. The tail without
cancellation is chosen, and its integral computed by the double exponential rule, in differentiable ops, so that there are
second gradients.

Sources: M. Figurnov, S. Mohamed, A. Mnih, "Implicit reparameterization gradients", NeurIPS 2018; H. Takahasi and M. Mori,
"Double exponential formulas for numerical integration", Publ. RIMS 9, 1974.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal import functions as ops
from polyhal.distributions.gamma_sampling import log_gamma_sample
from polyhal.functions import digamma
from polyhal.random import Generator
from polyhal.tape.function import Context, Function
from polyhal.tensor import Tensor

_PLACES = np.linspace(-3.0, 3.7, 48)
_NODES = np.exp(_PLACES - np.exp(-_PLACES))
_WEIGHTS = _NODES * (1 + np.exp(-_PLACES)) * (_PLACES[1] - _PLACES[0])
"""Quadrature rule on (0, inf) for integrands that fall about like exp(-s).

The gradient's relative error is below 1e-5 for shapes from 0.1, and 2e-4 for shapes from 0.001, measured against 2000 nodes.
"""


def log_gamma_rsample(shape: tuple[int, ...], concentration: Tensor, generator: Generator | None) -> Tensor:
    """Draw logarithms of gamma variables with rate 1, of `shape`, with gradients to `concentration`."""
    alpha = ops.broadcast_to(concentration, shape)
    drawn: Tensor = _Reparametrized.apply(alpha, log_gamma_sample(shape, alpha.detach(), generator))
    return drawn


class _Reparametrized(Function):
    """The sample itself; its gradient flows to the shape for which it was drawn."""

    @staticmethod
    def forward(ctx: Context, alpha: Tensor, sample: Tensor) -> Tensor:
        ctx.save_for_backward(alpha, sample)
        return sample

    @staticmethod
    def backward(ctx: Context, g: Any) -> Any:
        alpha, sample = ctx.saved_tensors
        return g * shape_gradient(alpha, sample), None


def shape_gradient(alpha: Tensor, log_sample: Tensor) -> Tensor:
    """Return the derivative of `log_sample`, the logarithm of a gamma variable of shape `alpha`, by `alpha`."""
    z = ops.exp(log_sample)
    lower = z <= alpha
    narrow = ops.abs(alpha - z) + ops.minimum(z, ops.sqrt(z))
    # Above, exp(-z exp(s)) ends the integrand at s = log(1 / z) for a small z.
    wide = ops.where(lower, ops.reciprocal(ops.clip(narrow, 1e-30, None)), _upper_scale(alpha, z))
    scale = ops.unsqueeze(wide.detach(), 0)
    column = (len(_NODES), *(1 for _ in alpha.shape))
    nodes, weights = (
        ops.reshape(Tensor(v, dtype=alpha.dtype, device=alpha.device), column) for v in (_NODES, _WEIGHTS)
    )
    sign = ops.where(lower, -1.0, 1.0)
    s = nodes * scale * sign
    exponent = alpha * s - z * ops.expm1(s)
    terms = ops.exp(exponent) * (log_sample + s - digamma(alpha))
    result: Tensor = sign * wide.detach() * ops.sum(weights * terms, axis=0)
    return result


def _upper_scale(alpha: Tensor, z: Tensor) -> Tensor:
    small = ops.clip(z, 1e-30, None)
    return ops.minimum(1 / (ops.abs(z - alpha) + ops.sqrt(small)), 0.2 * (1 + ops.log1p(1 / small)))
