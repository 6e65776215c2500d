"""Transforms and the distributions made with them agree with torch.distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal import distributions as D

T = torch.distributions
VALUES = np.array([[-1.5, 0.2, 0.9], [2.0, -0.3, 0.4]])
TRANSFORMS: list[tuple[str, Any, np.ndarray]] = [
    ("affine", lambda lib: lib.transforms.AffineTransform(1.0, -2.0), VALUES),
    ("affine-event", lambda lib: lib.transforms.AffineTransform(1.0, 3.0, event_dim=1), VALUES),
    ("exp", lambda lib: lib.transforms.ExpTransform(), VALUES),
    ("sigmoid", lambda lib: lib.transforms.SigmoidTransform(), VALUES),
    ("tanh", lambda lib: lib.transforms.TanhTransform(), VALUES),
    ("softplus", lambda lib: lib.transforms.SoftplusTransform(), VALUES),
    ("sticks", lambda lib: lib.transforms.StickBreakingTransform(), VALUES),
    ("inverse", lambda lib: lib.transforms.ExpTransform().inv, np.abs(VALUES)),
    ("independent", lambda lib: lib.transforms.IndependentTransform(lib.transforms.ExpTransform(), 1), VALUES),
    (
        "compose",
        lambda lib: lib.transforms.ComposeTransform(
            [lib.transforms.AffineTransform(0.5, 2.0), lib.transforms.StickBreakingTransform()]
        ),
        VALUES,
    ),
]


@pytest.mark.parametrize(("make", "values"), [t[1:] for t in TRANSFORMS], ids=[t[0] for t in TRANSFORMS])
def test_transforms(make: Any, values: np.ndarray) -> None:
    mine, theirs = make(D), make(T)
    x, x_torch = ph.tensor(values, device="numpy"), torch.from_numpy(values)
    y, y_torch = mine(x), theirs(x_torch)
    np.testing.assert_allclose(y.numpy(), y_torch.numpy(), rtol=1e-12)
    np.testing.assert_allclose(mine.inv(y).numpy(), values, rtol=1e-9)
    jacobian, expected = mine.log_abs_det_jacobian(x, y), theirs.log_abs_det_jacobian(x_torch, y_torch)
    np.testing.assert_allclose(jacobian.numpy(), expected.numpy(), rtol=1e-10, atol=1e-12)
    assert mine.forward_shape((2, 3)) == tuple(theirs.forward_shape((2, 3)))


@pytest.mark.parametrize(("make", "values"), [t[1:] for t in TRANSFORMS], ids=[t[0] for t in TRANSFORMS])
def test_transformed_distributions(make: Any, values: np.ndarray) -> None:
    zeros = np.zeros(3)
    base = (lambda lib, z: lib.Normal(z, z + 1)) if values.min() < 0 else (lambda lib, z: lib.Exponential(z + 1))
    mine = D.TransformedDistribution(base(D, ph.tensor(zeros, device="numpy")), [make(D)])
    theirs = T.TransformedDistribution(base(T, torch.from_numpy(zeros)), [make(T)])
    assert (mine.batch_shape, mine.event_shape) == (tuple(theirs.batch_shape), tuple(theirs.event_shape))
    y = make(T)(torch.from_numpy(values))
    found = mine.log_prob(ph.tensor(y.numpy(), device="numpy"))
    np.testing.assert_allclose(found.numpy(), theirs.log_prob(y).numpy(), rtol=1e-9)
    assert mine.rsample((2,)).shape == tuple(theirs.rsample((2,)).shape)


def test_independent(numpy_device: ph.Device) -> None:
    mine, theirs = D.Independent(D.Normal(ph.zeros(2, 3), 1.0), 1), T.Independent(T.Normal(torch.zeros(2, 3), 1.0), 1)
    assert (mine.batch_shape, mine.event_shape) == ((2,), (3,))
    value = np.ones((2, 3), np.float32)
    found = mine.log_prob(ph.tensor(value)).numpy()
    np.testing.assert_allclose(found, theirs.log_prob(torch.from_numpy(value)).numpy(), rtol=1e-6)
    np.testing.assert_allclose(mine.entropy().numpy(), theirs.entropy().numpy(), rtol=1e-6)
    assert D.kl_divergence(mine, mine.expand((2,))).tolist() == [0, 0]


def test_cdf_of_decreasing_transform() -> None:
    mine = D.TransformedDistribution(
        D.Normal(ph.tensor(VALUES[0], device="numpy"), 1.0), [D.AffineTransform(1.0, -2.0)]
    )
    theirs = T.TransformedDistribution(T.Normal(torch.from_numpy(VALUES[0]), 1.0), [T.AffineTransform(1.0, -2.0)])
    for p in (0.3, 0.9):
        value = np.array(p)
        found, expected = ph.tensor(value, device="numpy"), torch.from_numpy(value)
        np.testing.assert_allclose(mine.cdf(found).numpy(), theirs.cdf(expected).numpy(), rtol=1e-10)
        np.testing.assert_allclose(mine.icdf(found).numpy(), theirs.icdf(expected).numpy(), rtol=1e-10)
