"""Exponential families: distributions whose entropy follows from their log normalizer."""

from __future__ import annotations

from polyhal import functions as ops
from polyhal.distributions.distribution import Distribution
from polyhal.tape.engine import grad
from polyhal.tape.modes import enable_grad
from polyhal.tensor import Tensor


class ExponentialFamily(Distribution):
    """Base of densities exp(<natural parameters, statistics> - log normalizer(natural parameters) + carrier measure).

    A subclass defines `_natural_params`, `_log_normalizer` and `_mean_carrier_measure`; `entropy` follows by a Bregman
    divergence of the log normalizer. Source: F. Nielsen and R. Nock, "Entropies and cross-entropies of exponential families",
    ICIP 2010.
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> float:
        raise NotImplementedError

    def entropy(self) -> Tensor:
        result = -self._mean_carrier_measure
        with enable_grad():
            parameters = [p if p.requires_grad else p.detach().requires_grad_() for p in self._natural_params]
            log_normalizer = self._log_normalizer(*parameters)
            gradients = grad(ops.sum(log_normalizer), parameters, create_graph=True)
        entropy = log_normalizer + result
        for parameter, gradient in zip(parameters, gradients, strict=True):
            assert gradient is not None
            term = parameter * gradient
            entropy = entropy - ops.sum(ops.reshape(term, (*self.batch_shape, -1)), axis=-1)
        return entropy
