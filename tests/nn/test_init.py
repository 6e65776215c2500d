"""Starting values: distributions against PyTorch's, with Kolmogorov and Smirnov's test."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal import nn
from polyhal.nn import init
from polyhal.random import Generator


def same_distribution(ours: ph.Tensor, theirs: torch.Tensor) -> None:
    """Assert that the Kolmogorov-Smirnov distance is below the bound that equal distributions exceed once in 10,000 times.

    Both samples have thousands of elements, so that the asymptotic bound holds: with fixed seeds, a failure means a
    wrong distribution.
    """
    assert ours.shape == tuple(theirs.shape)
    a, b = np.sort(ours.numpy().ravel()), np.sort(theirs.detach().numpy().ravel())
    both = np.concatenate([a, b])
    distance = np.abs(np.searchsorted(a, both, "right") / a.size - np.searchsorted(b, both, "right") / b.size).max()
    assert distance < math.sqrt(-math.log(1e-4 / 2) / 2 * (1 / a.size + 1 / b.size))


@pytest.fixture(autouse=True)
def _seeds() -> None:
    ph.manual_seed(3)
    torch.manual_seed(3)


LAYERS: list[tuple[Callable[[ph.Device], nn.Module], Callable[[], torch.nn.Module]]] = [
    (lambda d: nn.Linear(70, 90, device=d), lambda: torch.nn.Linear(70, 90)),
    (lambda d: nn.Conv2d(8, 64, 5, groups=2, device=d), lambda: torch.nn.Conv2d(8, 64, 5, groups=2)),
    (lambda d: nn.Embedding(90, 60, device=d), lambda: torch.nn.Embedding(90, 60)),
    (lambda d: nn.MultiheadAttention(64, 4, device=d), lambda: torch.nn.MultiheadAttention(64, 4)),
    (lambda d: nn.TransformerEncoderLayer(64, 4, 64, device=d), lambda: torch.nn.TransformerEncoderLayer(64, 4, 64)),
    (lambda d: nn.BatchNorm2d(5, device=d), lambda: torch.nn.BatchNorm2d(5)),
]


@pytest.mark.parametrize(("ours", "theirs"), LAYERS)
def test_layers_start_as_in_pytorch(
    device: ph.Device, ours: Callable[[ph.Device], nn.Module], theirs: Callable[[], torch.nn.Module]
) -> None:
    expected = theirs().state_dict()
    for name, value in ours(device).state_dict().items():
        other = expected[name]
        if len(other.unique()) > 50:
            same_distribution(value, other)
        elif len(other.unique()) == 1:
            np.testing.assert_array_equal(value.numpy(), other.numpy(), err_msg=name)


NAMES = [
    ("uniform_", (-1.0, 2.0)),
    ("normal_", (1.0, 0.5)),
    ("xavier_uniform_", (1.5,)),
    ("xavier_normal_", ()),
    ("kaiming_uniform_", (0.2,)),
    ("kaiming_normal_", (0.0, "fan_out", "relu")),
    ("trunc_normal_", (0.5, 2.0, -1.0, 1.0)),
    ("trunc_normal_", (0.0, 1.0, 2.0, 4.0)),
]


@pytest.mark.parametrize(("name", "arguments"), NAMES)
def test_distributions(device: ph.Device, name: str, arguments: tuple[float, ...]) -> None:
    ours, theirs = ph.zeros((60, 70), device=device), torch.zeros(60, 70)
    getattr(init, name)(ours, *arguments)
    getattr(torch.nn.init, name)(theirs, *arguments)
    same_distribution(ours, theirs)


def test_inverse_error_function() -> None:
    x = np.concatenate([np.linspace(-0.999, 0.999, 999), [1e-6, -1e-4, 0.0, 0.99999]]).astype(np.float32)
    found = init._erfinv(ph.tensor(x, device="numpy")).numpy()
    np.testing.assert_allclose(found, torch.special.erfinv(torch.tensor(x)).numpy(), rtol=2e-5, atol=1e-9)


@pytest.mark.parametrize("shape", [(5, 8), (8, 5), (4, 3, 2)])
def test_orthogonal(device: ph.Device, shape: tuple[int, ...]) -> None:
    x = init.orthogonal_(ph.zeros(shape, device=device), 2.0).numpy().reshape(shape[0], -1)
    product = x @ x.T if x.shape[0] <= x.shape[1] else x.T @ x
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-5)


def test_constants_and_gains(device: ph.Device) -> None:
    x = nn.Parameter(ph.zeros((3,), device=device))
    assert init.constant_(x, 2.5).tolist() == [2.5] * 3
    assert init.ones_(x).tolist() == [1] * 3
    assert init.zeros_(x).tolist() == [0] * 3
    for kind in ("linear", "relu", "tanh", "sigmoid", "selu"):
        assert math.isclose(init.gain(kind), torch.nn.init.calculate_gain(kind))
    assert math.isclose(init.gain("leaky_relu", 0.3), torch.nn.init.calculate_gain("leaky_relu", 0.3))
    with pytest.raises(ValueError, match="no gain is known"):
        init.gain("swish")
    with pytest.raises(ValueError, match="at least 2 axes"):
        init.xavier_normal_(x)


def test_generator_decides(device: ph.Device) -> None:
    a, b = (init.normal_(ph.zeros((9,), device=device), generator=Generator(5)).tolist() for _ in range(2))
    assert a == b
