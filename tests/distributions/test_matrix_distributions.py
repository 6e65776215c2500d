"""Distributions of matrices and vectors compared with their moments and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal import distributions as D

stats = pytest.importorskip("scipy.stats", reason="SciPy is a development dependency")
pytestmark = pytest.mark.slow

COUNT = 4000


def test_factors_of_correlations_are_drawn(numpy_device: ph.Device) -> None:
    """Each correlation r has (r + 1) / 2 from Beta(b, b) with b = concentration + (dim - 2) / 2."""
    factor = D.LKJCholesky(4, ph.tensor(1.5)).sample((COUNT,), generator=ph.Generator(1)).numpy()
    correlations = factor @ factor.swapaxes(-1, -2)
    np.testing.assert_allclose(correlations[:, range(4), range(4)], 1, rtol=1e-5)
    for i, j in ((1, 0), (3, 1)):
        assert stats.kstest((correlations[:, i, j] + 1) / 2, stats.beta(2.5, 2.5).cdf).pvalue > 1e-3


def test_positive_definite_matrices_are_drawn(numpy_device: ph.Device) -> None:
    """x[0, 0] / v[0, 0] of a Wishart variable follows a chi-squared distribution, and log_prob SciPy's."""
    v = np.array([[2.0, 0.5], [0.5, 1.0]])
    wishart = D.Wishart(ph.tensor(np.float64(3.5)), ph.tensor(v))
    drawn = wishart.sample((COUNT,), generator=ph.Generator(1)).numpy()
    for i in range(2):
        assert stats.kstest(drawn[:, i, i] / v[i, i], stats.chi2(3.5).cdf).pvalue > 1e-3
    expected = stats.wishart(3.5, v).logpdf(drawn[:5].transpose(1, 2, 0))
    np.testing.assert_allclose(wishart.log_prob(ph.tensor(drawn[:5])).numpy(), expected, rtol=1e-9)


def test_a_covariance_of_low_rank(numpy_device: ph.Device) -> None:
    factor, diagonal = np.array([[1.0], [0.5]]), np.array([0.5, 1.5])
    normal = D.LowRankMultivariateNormal(ph.zeros(2, dtype="float64"), ph.tensor(factor), ph.tensor(diagonal))
    drawn = normal.sample((COUNT,), generator=ph.Generator(1)).numpy()
    covariance = factor @ factor.T + np.diag(diagonal)
    # The standard error of a variance v is v sqrt(2 / n), below 0.05 here.
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.2)
    np.testing.assert_allclose(normal.precision_matrix.numpy(), np.linalg.inv(covariance), rtol=1e-9)


def test_what_exceeds_a_threshold_is_as_scipy_says(numpy_device: ph.Device) -> None:
    """PyTorch's class takes only float32. The middle one is exponential, the first one ends at 1.5."""
    k, values = np.array([-0.2, 0.0, 0.4]), np.array([0.3, 1.0, 7.0])
    mine, theirs = D.GeneralizedPareto(ph.zeros(3, dtype="float64"), 0.3, ph.tensor(k)), stats.genpareto(k, 0, 0.3)
    np.testing.assert_allclose(mine.log_prob(ph.tensor(values)).numpy(), theirs.logpdf(values), rtol=1e-12)
    np.testing.assert_allclose(mine.cdf(ph.tensor(values)).numpy(), theirs.cdf(values), rtol=1e-12)
    np.testing.assert_allclose(mine.icdf(ph.tensor(np.full(3, 0.7))).numpy(), theirs.ppf(0.7), rtol=1e-12)
    np.testing.assert_allclose(mine.mean.numpy(), theirs.mean(), rtol=1e-12)
    np.testing.assert_allclose(mine.variance.numpy(), theirs.var(), rtol=1e-12)
    np.testing.assert_allclose(mine.entropy().numpy(), theirs.entropy(), rtol=1e-12)


def test_entropy_of_an_exponential_family(numpy_device: ph.Device) -> None:
    class Exponential(D.ExponentialFamily):
        def __init__(self, rate: ph.Tensor) -> None:
            self.rate = rate
            super().__init__(rate.shape)

        @property
        def _natural_params(self) -> tuple[ph.Tensor, ...]:
            return (-self.rate,)

        def _log_normalizer(self, *natural_params: ph.Tensor) -> ph.Tensor:
            return -ph.log(-natural_params[0])

        @property
        def _mean_carrier_measure(self) -> float:
            return 0.0

    rate = np.array([0.5, 2.0])
    expected = torch.distributions.Exponential(torch.from_numpy(rate)).entropy()
    np.testing.assert_allclose(Exponential(ph.tensor(rate)).entropy().numpy(), expected.numpy(), rtol=1e-12)
