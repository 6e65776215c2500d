"""Densities, moments and divergences agree with torch.distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal import distributions as D
from polyhal.hal.system.discovery.registry import registry

UNIT = [0.15, 0.5, 0.8]
POSITIVE = [0.3, 1.0, 2.5]
REAL = [-1.2, 0.4, 2.0]
COUNTS = [0.0, 1.0, 4.0]
SIMPLEX = [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]
ONE_HOT = [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
MATRIX = [[2.0, 0.5], [0.5, 1.0]]
CORRELATION = np.linalg.cholesky([[1.0, 0.3, -0.2], [0.3, 1.0, 0.1], [-0.2, 0.1, 1.0]]).tolist()
VECTORS = [[0.3, -1.0], [0.0, 1.5]]

CASES: list[tuple[str, dict[str, Any], Any]] = [
    ("Normal", {"loc": REAL, "scale": POSITIVE}, REAL[::-1]),
    ("Uniform", {"low": REAL, "high": [3.0, 4.0, 5.0]}, [0.5, 1.0, 4.0]),
    ("Bernoulli", {"probs": UNIT}, [0.0, 1.0, 1.0]),
    ("Bernoulli", {"logits": REAL}, [0.0, 1.0, 1.0]),
    ("Categorical", {"probs": SIMPLEX}, [0, 2]),
    ("Categorical", {"logits": [REAL, POSITIVE]}, [0, 2]),
    ("OneHotCategorical", {"probs": SIMPLEX}, ONE_HOT),
    ("Multinomial", {"total_count": 4, "probs": SIMPLEX}, [[1.0, 1.0, 2.0], [4.0, 0.0, 0.0]]),
    ("Binomial", {"total_count": 6, "probs": UNIT}, COUNTS),
    ("Binomial", {"total_count": 6, "logits": REAL}, COUNTS),
    ("Geometric", {"probs": UNIT}, COUNTS),
    ("Geometric", {"logits": REAL}, COUNTS),
    ("Poisson", {"rate": POSITIVE}, COUNTS),
    ("Exponential", {"rate": POSITIVE}, [0.2, 1.0, 3.0]),
    ("Laplace", {"loc": REAL, "scale": POSITIVE}, REAL[::-1]),
    ("Cauchy", {"loc": REAL, "scale": POSITIVE}, REAL[::-1]),
    ("HalfNormal", {"scale": POSITIVE}, [0.2, 1.0, 3.0]),
    ("HalfCauchy", {"scale": POSITIVE}, [0.2, 1.0, 3.0]),
    ("Gumbel", {"loc": REAL, "scale": POSITIVE}, REAL[::-1]),
    ("LogNormal", {"loc": REAL, "scale": POSITIVE}, [0.2, 1.0, 3.0]),
    ("Gamma", {"concentration": POSITIVE, "rate": [2.0, 0.5, 1.0]}, [0.2, 1.0, 3.0]),
    ("InverseGamma", {"concentration": [0.5, 1.5, 3.0], "rate": POSITIVE}, [0.2, 1.0, 3.0]),
    ("Beta", {"concentration1": POSITIVE, "concentration0": [0.5, 3.0, 1.5]}, UNIT),
    ("Dirichlet", {"concentration": [POSITIVE, [2.0, 3.0, 0.5]]}, SIMPLEX),
    ("Chi2", {"df": POSITIVE}, [0.2, 1.0, 3.0]),
    ("StudentT", {"df": [0.7, 2.5, 6.0], "loc": REAL, "scale": POSITIVE}, REAL[::-1]),
    ("FisherSnedecor", {"df1": POSITIVE, "df2": [1.0, 3.0, 5.5]}, [0.2, 1.0, 3.0]),
    ("Weibull", {"scale": POSITIVE, "concentration": [0.6, 1.5, 2.0]}, [0.2, 1.0, 3.0]),
    ("Pareto", {"scale": POSITIVE, "alpha": [0.7, 1.5, 2.5]}, [1.0, 2.0, 3.0]),
    ("Kumaraswamy", {"concentration1": POSITIVE, "concentration0": [0.5, 3.0, 1.5]}, UNIT),
    ("NegativeBinomial", {"total_count": [1.0, 2.5, 4.0], "probs": UNIT}, COUNTS),
    ("NegativeBinomial", {"total_count": [1.0, 2.5, 4.0], "logits": REAL}, COUNTS),
    ("MultivariateNormal", {"loc": VECTORS[0], "covariance_matrix": MATRIX}, VECTORS),
    ("MultivariateNormal", {"loc": VECTORS[0], "precision_matrix": MATRIX}, VECTORS),
    ("MultivariateNormal", {"loc": VECTORS[0], "scale_tril": [[1.0, 0.0], [0.5, 2.0]]}, VECTORS),
    ("RelaxedBernoulli", {"temperature": 0.7, "probs": UNIT}, UNIT),
    ("RelaxedOneHotCategorical", {"temperature": 0.7, "probs": SIMPLEX}, SIMPLEX),
    ("VonMises", {"loc": REAL, "concentration": [0.3, 1.0, 20.0]}, REAL[::-1]),
    ("ContinuousBernoulli", {"probs": UNIT}, UNIT),
    ("ContinuousBernoulli", {"logits": REAL}, UNIT),
    ("LogisticNormal", {"loc": VECTORS, "scale": [[0.5, 1.0], [2.0, 0.7]]}, SIMPLEX),
    (
        "LowRankMultivariateNormal",
        {"loc": VECTORS[0], "cov_factor": [[1.0], [0.5]], "cov_diag": [0.5, 1.5]},
        VECTORS,
    ),
    ("Wishart", {"df": 3.5, "covariance_matrix": MATRIX}, [MATRIX, [[1.0, -0.3], [-0.3, 0.5]]]),
    ("LKJCholesky", {"dim": 3, "concentration": [0.7, 2.0]}, [CORRELATION, np.eye(3).tolist()]),
]
"""Class, parameters and values."""
MOMENTS = ["mean", "variance", "stddev", "mode", "entropy", "perplexity"]
DIFFERENT = {
    ("Kumaraswamy", "mode"): "NaN in PyTorch for a second parameter above 1",
    ("Weibull", "mode"): "NaN in PyTorch for a concentration below 1, where the density is infinite at 0",
    ("Beta", "mode"): "1 in PyTorch where the density is infinite at both ends; here the end where it grows faster",
    ("Multinomial", "entropy"): "computed in float32 by PyTorch; compared with SciPy instead",
    ("Multinomial", "perplexity"): "follows from the entropy",
}
"""Cases that are not compared, with the reason."""
LOOSE = {"VonMises": 1e-6}
"""PyTorch computes its Bessel functions by polynomials for single precision."""


def in_torch(value: Any) -> torch.Tensor:
    return torch.from_numpy(np.asarray(value))


class Pair:
    """A distribution of both libraries, with parameters that take gradients."""

    def __init__(self, name: str, parameters: dict[str, Any], device: str, dtype: str) -> None:
        self.device, self.dtype = device, dtype
        self.mine = {k: v if isinstance(v, int) else self.tensor(v, True) for k, v in parameters.items()}
        self.theirs = {
            k: torch.tensor(v, dtype=torch.float64, requires_grad=True) if isinstance(self.mine[k], ph.Tensor) else v
            for k, v in parameters.items()
        }
        self.polyhal = getattr(D, name)(**self.mine)
        self.torch = getattr(torch.distributions, name)(**self.theirs)

    def tensor(self, value: Any, requires_grad: bool = False) -> ph.Tensor:
        dtype = "int64" if np.asarray(value).dtype == np.int64 else self.dtype
        return ph.tensor(np.asarray(value, dtype), device=self.device, requires_grad=requires_grad)

    def check(self, found: ph.Tensor, expected: torch.Tensor) -> None:
        tolerance = LOOSE.get(type(self.polyhal).__name__, 1e-10) if self.dtype == "float64" else 3e-5
        assert found.shape == tuple(expected.shape)
        np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), rtol=tolerance, atol=tolerance)


@pytest.fixture(params=[("numpy", "float64"), ("opencl", "float32")], ids=["numpy", "opencl"])
def target(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A device and a dtype. Formulas are compared on NumPy; that they run in float32 on a device shows with densities."""
    if not registry().probe(request.param[0]):
        pytest.skip("no such device")
    return request.param  # type: ignore[no-any-return]


NAMES = [f"{name}-{'-'.join(p)}" for name, p, _ in CASES]


@pytest.mark.parametrize(("name", "parameters", "value"), CASES, ids=NAMES)
def test_log_prob_and_its_gradients(target: tuple[str, str], name: str, parameters: Any, value: Any) -> None:
    pair = Pair(name, parameters, *target)
    found, expected = pair.polyhal.log_prob(pair.tensor(value)), pair.torch.log_prob(in_torch(value))
    pair.check(found, expected)
    found.sum().backward()
    expected.sum().backward()
    for key, parameter in pair.mine.items():
        if isinstance(parameter, ph.Tensor):
            assert parameter.grad is not None
            pair.check(parameter.grad, pair.theirs[key].grad)


def evaluated(compute: Callable[[], Any]) -> Any:
    """The result, or None where PyTorch has none."""
    try:
        return compute()
    except NotImplementedError:
        return None


@pytest.mark.parametrize(("name", "parameters", "value"), CASES, ids=NAMES)
def test_moments_and_entropy(name: str, parameters: Any, value: Any) -> None:
    pair = Pair(name, parameters, "numpy", "float64")
    assert pair.polyhal.batch_shape == tuple(pair.torch.batch_shape)
    assert pair.polyhal.event_shape == tuple(pair.torch.event_shape)
    for what in MOMENTS:
        theirs = evaluated(lambda what=what: getattr(pair.torch, what))
        theirs = evaluated(theirs) if callable(theirs) else theirs
        if theirs is None or (name, what) in DIFFERENT:
            continue
        mine = getattr(pair.polyhal, what)
        pair.check(mine() if callable(mine) else mine, theirs)


@pytest.mark.parametrize(("name", "parameters", "value"), CASES, ids=NAMES)
def test_cdf_and_icdf(name: str, parameters: Any, value: Any) -> None:
    pair = Pair(name, parameters, "numpy", "float64")
    expected = evaluated(lambda: pair.torch.cdf(in_torch(value)))
    if expected is None:
        return
    pair.check(pair.polyhal.cdf(pair.tensor(value)), expected)
    expected = evaluated(lambda: pair.torch.icdf(torch.tensor(UNIT, dtype=torch.float64)))
    if expected is not None:
        pair.check(pair.polyhal.icdf(pair.tensor(UNIT)), expected)


@pytest.mark.parametrize(("name", "parameters", "value"), CASES, ids=NAMES)
def test_expand_and_enumerate(name: str, parameters: Any, value: Any) -> None:
    pair = Pair(name, parameters, "numpy", "float64")
    shape = (2, *pair.polyhal.batch_shape)
    expanded = pair.polyhal.expand(shape)
    assert expanded.batch_shape == shape
    assert expanded.sample((3,)).shape == (3, *shape, *expanded.event_shape)
    pair.check(expanded.log_prob(pair.tensor(value)), pair.torch.expand(shape).log_prob(in_torch(value)))
    assert pair.polyhal.has_enumerate_support == pair.torch.has_enumerate_support
    if pair.torch.has_enumerate_support:
        for expand in (True, False):
            pair.check(pair.polyhal.enumerate_support(expand), pair.torch.enumerate_support(expand))


DIVERGENCES = [
    *(
        (n, p, n)
        for n, p, _ in CASES
        if n not in {"Multinomial", "RelaxedBernoulli", "RelaxedOneHotCategorical", "LogisticNormal"}
    ),
    ("Uniform", CASES[1][1], "Normal"),
    ("Normal", CASES[0][1], "Laplace"),
    ("Laplace", CASES[0][1], "Normal"),
    ("Exponential", {"rate": POSITIVE}, "Gamma"),
    ("Gamma", CASES[20][1], "Exponential"),
]


@pytest.mark.parametrize(
    ("name", "parameters", "other"), DIVERGENCES, ids=[f"{a}-{b}-{i}" for i, (a, _, b) in enumerate(DIVERGENCES)]
)
def test_kl_divergence(name: str, parameters: Any, other: str) -> None:
    p = Pair(name, parameters, "numpy", "float64")
    second = dict(next(q for n, q, _ in CASES if n == other)) if other != name else dict(parameters)
    for key, v in second.items():
        if key != "total_count":
            fixed = np.ndim(v) == 0 or (name == "MultivariateNormal" and key != "loc") or key == "covariance_matrix"
            second[key] = v if fixed else np.roll(v, 1, -1).tolist()
    q = Pair(other, second, "numpy", "float64")
    expected = evaluated(lambda: torch.distributions.kl_divergence(p.torch, q.torch))
    if expected is None:
        with pytest.raises(NotImplementedError, match="no formula"):
            D.kl_divergence(p.polyhal, q.polyhal)
    else:
        p.check(D.kl_divergence(p.polyhal, q.polyhal), expected)
