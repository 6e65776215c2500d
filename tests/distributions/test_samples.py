"""Samples follow their distributions, agree between devices up to rounding, and carry gradients where they can."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal import distributions as D

stats = pytest.importorskip("scipy.stats", reason="SciPy is a development dependency")
pytestmark = pytest.mark.slow

COUNT = 4000
"""Draws, on NumPy. That devices draw the same up to rounding is a test of its own."""
CONTINUOUS: list[tuple[Any, Any]] = [
    (lambda t: D.Normal(t(1.0), t(2.0)), stats.norm(1, 2)),
    (lambda t: D.Uniform(t(-1.0), t(2.0)), stats.uniform(-1, 3)),
    (lambda t: D.Exponential(t(2.0)), stats.expon(scale=0.5)),
    (lambda t: D.Laplace(t(1.0), t(2.0)), stats.laplace(1, 2)),
    (lambda t: D.Cauchy(t(1.0), t(2.0)), stats.cauchy(1, 2)),
    (lambda t: D.HalfNormal(t(2.0)), stats.halfnorm(scale=2)),
    (lambda t: D.HalfCauchy(t(2.0)), stats.halfcauchy(scale=2)),
    (lambda t: D.Gumbel(t(1.0), t(2.0)), stats.gumbel_r(1, 2)),
    (lambda t: D.LogNormal(t(0.5), t(0.7)), stats.lognorm(0.7, scale=np.exp(0.5))),
    (lambda t: D.Gamma(t(0.3), t(2.0)), stats.gamma(0.3, scale=0.5)),
    (lambda t: D.Gamma(t(7.0), t(0.5)), stats.gamma(7, scale=2)),
    (lambda t: D.InverseGamma(t(2.0), t(3.0)), stats.invgamma(2, scale=3)),
    (lambda t: D.Beta(t(0.6), t(2.0)), stats.beta(0.6, 2)),
    (lambda t: D.Chi2(t(3.0)), stats.chi2(3)),
    (lambda t: D.StudentT(t(3.0), t(1.0), t(2.0)), stats.t(3, 1, 2)),
    (lambda t: D.FisherSnedecor(t(3.0), t(5.0)), stats.f(3, 5)),
    (lambda t: D.Weibull(t(2.0), t(1.5)), stats.weibull_min(1.5, scale=2)),
    (lambda t: D.Pareto(t(2.0), t(3.0)), stats.pareto(3, scale=2)),
    (lambda t: D.GeneralizedPareto(t(1.0), t(2.0), t(-0.3)), stats.genpareto(-0.3, 1, 2)),
    (lambda t: D.VonMises(t(0.0), t(0.05)), stats.vonmises(0.05)),
    (lambda t: D.VonMises(t(0.5), t(4.0)), stats.vonmises(4, 0.5)),
    (lambda t: D.VonMises(t(-0.5), t(2000.0)), stats.vonmises(2000, -0.5)),
]
DISCRETE: list[tuple[Any, Any]] = [
    (lambda t: D.Bernoulli(t(0.3)), stats.bernoulli(0.3)),
    (lambda t: D.Geometric(t(0.3)), stats.geom(0.3, loc=-1)),
    (lambda t: D.Poisson(t(0.7)), stats.poisson(0.7)),
    (lambda t: D.Poisson(t(9.5)), stats.poisson(9.5)),
    (lambda t: D.Poisson(t(11.0)), stats.poisson(11)),
    (lambda t: D.Poisson(t(300.0)), stats.poisson(300)),
    (lambda t: D.Binomial(12, t(0.8)), stats.binom(12, 0.8)),
    (lambda t: D.Binomial(25, t(0.45)), stats.binom(25, 0.45)),
    (lambda t: D.Binomial(1000, t(0.7)), stats.binom(1000, 0.7)),
    (lambda t: D.NegativeBinomial(t(4.0), t(0.6)), stats.nbinom(4, 0.4)),
    (lambda t: D.Categorical(t([0.2, 0.5, 0.3])), stats.rv_discrete(values=([0, 1, 2], [0.2, 0.5, 0.3]))),
]


def drawn(distribution: D.Distribution, count: int = COUNT) -> np.ndarray:
    return distribution.sample((count,), generator=ph.Generator(11)).numpy()


def maker(device: ph.Device) -> Any:
    return lambda value: ph.tensor(value, dtype="float32", device=device)


@pytest.mark.parametrize(("make", "expected"), CONTINUOUS)
def test_continuous_samples(numpy_device: ph.Device, make: Any, expected: Any) -> None:
    assert stats.kstest(drawn(make(maker(numpy_device))), expected.cdf).pvalue > 1e-3


@pytest.mark.parametrize(("make", "expected"), DISCRETE)
def test_discrete_samples(numpy_device: ph.Device, make: Any, expected: Any) -> None:
    """Counts between quantiles of the distribution, by a chi-squared test."""
    found = drawn(make(maker(numpy_device)))
    edges = np.unique([expected.ppf(q) for q in (0.001, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999)])
    cdf = np.concatenate([[0], expected.cdf(edges), [1]])
    share, counts = np.diff(cdf), np.bincount(np.searchsorted(edges, found), minlength=len(edges) + 1)
    kept = share > 1e-9
    assert counts[~kept].sum() == 0
    expected_counts = share[kept] / share[kept].sum() * COUNT
    assert stats.chisquare(counts[kept], expected_counts).pvalue > 1e-3


def test_vectors(numpy_device: ph.Device) -> None:
    t = maker(numpy_device)
    dirichlet = drawn(D.Dirichlet(t([0.5, 1.0, 2.5])))
    np.testing.assert_allclose(dirichlet.sum(-1), 1, rtol=1e-5)
    assert stats.kstest(dirichlet[:, 2], stats.beta(2.5, 1.5).cdf).pvalue > 1e-3
    counts = drawn(D.Multinomial(10, t([0.2, 0.5, 0.3])))
    assert (counts.sum(-1) == 10).all()
    np.testing.assert_allclose(counts.mean(0), [2, 5, 3], atol=0.15)
    matrix = np.array([[2.0, 0.5], [0.5, 1.0]])
    normal = drawn(D.MultivariateNormal(t([1.0, -1.0]), t(matrix)))
    np.testing.assert_allclose(np.cov(normal.T), matrix, atol=0.15)
    one_hot = drawn(D.OneHotCategorical(t([0.2, 0.5, 0.3])))
    np.testing.assert_allclose(one_hot.mean(0), [0.2, 0.5, 0.3], atol=0.04)


def test_mixtures(numpy_device: ph.Device) -> None:
    t = maker(numpy_device)
    mixture = D.MixtureSameFamily(D.Categorical(t([0.3, 0.7])), D.Normal(t([-2.0, 1.0]), t([0.5, 1.0])))
    found = drawn(mixture)

    def cdf(x: Any) -> Any:
        return 0.3 * stats.norm(-2, 0.5).cdf(x) + 0.7 * stats.norm(1, 1).cdf(x)

    assert stats.kstest(found, cdf).pvalue > 1e-3
    np.testing.assert_allclose(mixture.cdf(t([0.3])).numpy(), cdf(0.3), rtol=1e-5)
    np.testing.assert_allclose(mixture.mean.item(), 0.1, atol=1e-6)


def test_gradients_reach_parameters(device: ph.Device) -> None:
    loc, scale = (ph.tensor(v, device=device, requires_grad=True) for v in (1.0, 2.0))
    sample = D.Normal(loc, scale).rsample((5,), generator=ph.Generator(3))
    sample.sum().backward()
    assert loc.grad is not None
    assert scale.grad is not None
    assert loc.grad.item() == 5
    np.testing.assert_allclose(scale.grad.item(), ((sample.detach() - 1) / 2).sum().item(), rtol=1e-5)
    assert not D.Normal(loc, scale).sample().requires_grad


def test_entropy_of_multinomial(numpy_device: ph.Device) -> None:
    probs = [0.2, 0.3, 0.5]
    found = D.Multinomial(4, ph.tensor(np.array(probs))).entropy()
    np.testing.assert_allclose(found.item(), stats.multinomial(4, probs).entropy(), rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: D.Normal(0.0, -1.0), "scale"),
        (lambda: D.Bernoulli(1.5), "probs"),
        (lambda: D.Bernoulli(), "exactly one of both"),
        (lambda: D.Bernoulli(0.5, 0.0), "exactly one of both"),
        (lambda: D.Uniform(1.0, 0.0), "low < high"),
        (lambda: D.Categorical(0.5), "one or more axes"),
        (lambda: D.Categorical(ph.tensor([0.5, -0.1])), "probs"),
        (lambda: D.MultivariateNormal(ph.zeros(2)), "exactly one of"),
        (lambda: D.MultivariateNormal(ph.zeros(2), ph.tensor([[1.0, 2.0], [2.0, 1.0]])), "covariance_matrix"),
        (lambda: D.Exponential(1.0).log_prob(-1.0), "outside of the support"),
        (lambda: D.Poisson(1.0).log_prob(0.5), "outside of the support"),
        (lambda: D.Dirichlet(ph.ones(3)).log_prob(ph.ones(2)), "last axes"),
        (lambda: D.Independent(D.Normal(0.0, 1.0), 1), "at most 0"),
    ],
)
def test_bad_arguments(numpy_device: ph.Device, make: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        make()


def test_checks_can_be_turned_off(numpy_device: ph.Device) -> None:
    assert D.Exponential(1.0, validate_args=False).log_prob(-1.0).item() == 1.0


def test_a_seed_gives_the_same_sample_up_to_rounding(device: ph.Device) -> None:
    """Few counts may differ by 1, where rounding moves a number across a threshold."""
    for make in (lambda t: D.Gamma(t([0.3, 5.0]), t(1.0)), lambda t: D.Poisson(t([3.0, 50.0]))):
        found, expected = (drawn(make(maker(where)), 200) for where in (device, ph.Device("numpy")))
        differing = ~np.isclose(found, expected, rtol=1e-4, atol=0)
        assert differing.mean() < 0.01


def test_captured_steps_draw_anew_and_do_not_check(device: ph.Device) -> None:
    @ph.jit
    def step(x: ph.Tensor) -> tuple[ph.Tensor, ...]:
        normal = D.Normal(x, 1.0)
        counts = (D.Poisson(x + 3.0).sample(), D.Binomial(9, probs=x + 0.5).sample())
        return normal.log_prob(normal.rsample()), D.Gamma(x + 2.0, x + 1.0).sample(), *counts

    x = ph.zeros(64, device=device)
    runs = [[out.numpy() for out in step(x)] for _ in range(4)]
    for earlier, later in itertools.pairwise(runs):
        assert all((a != b).any() for a, b in zip(earlier, later, strict=True))
    assert (np.array([run[3] for run in runs]) <= 9).all()
