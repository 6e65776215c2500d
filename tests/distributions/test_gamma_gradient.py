"""Gradients through gamma variables, and of variables made of them, equal the gradients of samples that keep their place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal import distributions as D
from polyhal.distributions.gamma_gradient import shape_gradient

special = pytest.importorskip("scipy.special", reason="SciPy is a development dependency")
pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 2e-5), ("float32", 2e-4)])
def test_the_gradient_is_that_of_the_inverse_of_the_distribution_function(dtype: str, tolerance: float) -> None:
    """By central differences of SciPy's inverse, on both tails. Their own error is below 1e-6."""
    a = np.repeat([0.05, 0.5, 1.0, 3.0, 40.0, 1000.0], 6)
    place = np.tile([1e-3, 0.05, 0.3, 0.6, 0.95, 0.999], 6)
    z, step = special.gammaincinv(a, place), 1e-5 * a
    kept = np.log(z) > -60
    expected = (special.gammaincinv(a + step, place) - special.gammaincinv(a - step, place)) / (2 * step)
    alpha, log_z = (ph.tensor(v[kept], dtype=dtype, device="numpy") for v in (a, np.log(z)))
    found = shape_gradient(alpha, log_z).numpy() * z[kept]
    np.testing.assert_allclose(found, expected[kept], rtol=tolerance)


def test_samples_have_second_gradients(numpy_device: ph.Device) -> None:
    """d2z/da2 along constant place, by differences of the first gradient."""
    a, h = 2.5, 1e-4
    place = special.gammainc(a, 1.7)
    z = [special.gammaincinv(x, place) for x in (a - h, a, a + h)]
    alpha = ph.tensor(np.float64(a), requires_grad=True)
    log_z = ph.tensor(np.float64(np.log(z[1])), requires_grad=True)
    slope = shape_gradient(alpha, log_z)
    by_alpha, by_z = ph.grad(slope, [alpha, log_z])
    assert by_alpha is not None
    assert by_z is not None
    total = by_alpha.item() + by_z.item() * slope.item()
    shapes, logs = np.array([a - h, a + h]), np.log([z[0], z[2]])
    before, after = shape_gradient(ph.tensor(shapes), ph.tensor(logs)).tolist()
    np.testing.assert_allclose(total, (after - before) / (2 * h), rtol=1e-3)


MEANS: list[tuple[Any, tuple[float, ...], Any]] = [
    (lambda a, b: D.Gamma(a, b), (3.0, 2.0), lambda a, b: a / b),
    (lambda a, b: D.InverseGamma(a, b), (6.0, 2.0), lambda a, b: b / (a - 1)),
    (lambda a, b: D.Beta(a, b), (2.0, 3.0), lambda a, b: a / (a + b)),
    (lambda a, b: D.Dirichlet(ph.stack([a, b], -1)), (2.0, 3.0), lambda a, b: a / (a + b)),
    (lambda a, b: D.FisherSnedecor(a, b), (5.0, 12.0), lambda a, b: b / (b - 2)),
]


@pytest.mark.parametrize(("make", "parameters", "mean"), MEANS, ids=["Gamma", "InverseGamma", "Beta", "Dirichlet", "F"])
def test_the_mean_of_gradients_is_the_gradient_of_the_mean(
    numpy_device: ph.Device, make: Any, parameters: tuple[float, ...], mean: Any
) -> None:
    """Within 4.5 standard errors: by chance one test in 10,000 fails, and the seed is fixed."""
    count = 4000
    leaves = [ph.tensor(np.full(count, v), requires_grad=True) for v in parameters]
    drawn = make(*leaves).rsample(generator=ph.Generator(5))
    (drawn if drawn.ndim == 1 else drawn[:, 0]).sum().backward()
    for i, leaf in enumerate(leaves):
        h = 1e-5
        up, down = (list(parameters) for _ in range(2))
        up[i], down[i] = up[i] + h, down[i] - h
        expected = (mean(*up) - mean(*down)) / (2 * h)
        assert leaf.grad is not None
        g = leaf.grad.numpy()
        assert abs(g.mean() - expected) < 4.5 * g.std() / np.sqrt(count) + 1e-9


def test_gradients_reach_shapes_on_devices(device: ph.Device) -> None:
    shape = ph.tensor([0.4, 3.0], dtype="float32", device=device, requires_grad=True)
    host = ph.tensor([0.4, 3.0], dtype="float32", device="numpy", requires_grad=True)
    for leaf in (shape, host):
        D.Gamma(leaf, 1.0).rsample((3,), generator=ph.Generator(2)).sum().backward()
    assert shape.grad is not None
    assert host.grad is not None
    np.testing.assert_allclose(shape.grad.numpy(), host.grad.numpy(), rtol=1e-3)
