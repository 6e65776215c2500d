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
    ("corr-cholesky", lambda lib: lib.transforms.CorrCholeskyTransform(), VALUES),
    ("reshape", lambda lib: lib.transforms.ReshapeTransform((3,), (1, 3)), VALUES),
    (
        "cat",
        lambda lib: lib.transforms.CatTransform(
            [lib.transforms.ExpTransform(), lib.transforms.AffineTransform(1.0, 2.0)], -1, [1, 2]
        ),
        VALUES,
    ),
    (
        "stack",
        lambda lib: lib.transforms.StackTransform(
            [lib.transforms.ExpTransform(), lib.transforms.TanhTransform(), lib.transforms.SigmoidTransform()], -1
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


BASES = [t for t in TRANSFORMS if t[0] not in ("reshape", "cat", "stack")]
"""A distribution of transformed vectors needs a transform whose event axes are known."""


@pytest.mark.parametrize(("make", "values"), [t[1:] for t in BASES], ids=[t[0] for t in BASES])
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


MATRIX = np.array([[0.3, 5.0], [-0.7, 0.2]])


@pytest.mark.parametrize("name", ["LowerCholeskyTransform", "PositiveDefiniteTransform"])
def test_transforms_of_matrices(name: str) -> None:
    mine, theirs = getattr(D.transforms, name)(), getattr(T.transforms, name)()
    found, expected = mine(ph.tensor(MATRIX, device="numpy")), theirs(torch.from_numpy(MATRIX))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12)
    np.testing.assert_allclose(mine.inv(found).numpy(), theirs.inv(expected).numpy(), rtol=1e-10, atol=1e-12)


def test_the_distribution_function_is_a_transform() -> None:
    mine = D.CumulativeDistributionTransform(D.Normal(ph.tensor(0.5, dtype="float64", device="numpy"), 2.0))
    theirs = T.CumulativeDistributionTransform(T.Normal(torch.tensor(0.5, dtype=torch.float64), 2.0))
    x, x_torch = ph.tensor(VALUES, device="numpy"), torch.from_numpy(VALUES)
    np.testing.assert_allclose(mine(x).numpy(), theirs(x_torch).numpy(), rtol=1e-10)
    np.testing.assert_allclose(mine.inv(mine(x)).numpy(), VALUES, rtol=1e-8)
    jacobian = mine.log_abs_det_jacobian(x, mine(x)).numpy()
    np.testing.assert_allclose(jacobian, theirs.log_abs_det_jacobian(x_torch, theirs(x_torch)).numpy(), rtol=1e-10)


CONSTRAINTS: list[Any] = [
    lambda c: c.real,
    lambda c: c.positive,
    lambda c: c.greater_than(2.0),
    lambda c: c.less_than(2.0),
    lambda c: c.unit_interval,
    lambda c: c.interval(-1.0, 3.0),
    lambda c: c.simplex,
    lambda c: c.corr_cholesky,
    lambda c: c.real_vector,
    lambda c: c.cat([c.positive, c.real], -1, [1, 2]),
    lambda c: c.stack([c.positive, c.real, c.unit_interval], -1),
]


@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
@pytest.mark.parametrize("number", range(len(CONSTRAINTS)))
def test_transforms_onto_constraints(registry: str, number: int) -> None:
    constraint = CONSTRAINTS[number](D.constraints)
    found = getattr(D, registry)(constraint)(ph.tensor(VALUES, device="numpy"))
    expected = getattr(T, registry)(CONSTRAINTS[number](T.constraints))(torch.from_numpy(VALUES))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12)
    assert ph.all(constraint.check(found)).item()


def test_a_constraint_without_a_transform_is_named() -> None:
    with pytest.raises(NotImplementedError, match="no transform"):
        D.biject_to(D.constraints.boolean)
