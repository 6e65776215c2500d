"""Draws under PyTorch's names: distributed as they should be, reproducible, and refused where they make no sense."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal.hal.errors import AutogradError
from polyhal.random import Generator

stats = pytest.importorskip("scipy.stats", reason="SciPy is a development dependency")
pytestmark = pytest.mark.slow

N = 20000


@pytest.mark.parametrize(
    ("method", "arguments", "distribution"),
    [
        ("uniform_", (-1, 3), ("uniform", (-1, 4))),
        ("normal_", (1, 2), ("norm", (1, 2))),
        ("exponential_", (0.5,), ("expon", (0, 2))),
        ("cauchy_", (1, 2), ("cauchy", (1, 2))),
        ("log_normal_", (0, 1), ("lognorm", (1,))),
    ],
)
def test_overwriting_draws_follow_their_distribution(
    method: str, arguments: tuple[Any, ...], distribution: tuple[str, Any], device: ph.Device
) -> None:
    x = ph.empty(N, device=device)
    assert getattr(x, method)(*arguments, generator=Generator(5)) is x
    assert stats.kstest(x.numpy(), *distribution).pvalue > 1e-4


def test_counts_of_trials_follow_the_geometric_distribution(device: ph.Device) -> None:
    drawn = ph.empty(N, dtype=ph.int32, device=device).geometric_(0.3, generator=Generator(6)).numpy()
    expected = stats.geom(0.3).pmf(np.arange(1, 11)) * N
    assert drawn.min() == 1
    assert (
        stats.chisquare([*np.bincount(drawn)[1:11], (drawn > 10).sum()], [*expected, N - expected.sum()]).pvalue > 1e-4
    )
    assert ph.empty(3, device=device).geometric_(1).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("replacement", [False, True])
def test_weights_decide_how_often_a_position_is_drawn(replacement: bool, device: ph.Device) -> None:
    weights = ph.tensor([0.0, 3.0, 0.0, 1.0, 4.0], device=device)
    rows = weights.expand(N, 5).contiguous() if not replacement else weights
    drawn = ph.multinomial(rows, 1 if not replacement else N, replacement, generator=Generator(7)).numpy().reshape(-1)
    counts = np.bincount(drawn, minlength=5)
    assert counts[[0, 2]].tolist() == [0, 0]
    assert stats.chisquare(counts[[1, 3, 4]], np.array([3, 1, 4]) * N / 8).pvalue > 1e-4


def test_draws_without_replacement_never_repeat(device: ph.Device) -> None:
    drawn = ph.rand((50, 6), device=device).multinomial(6)
    assert drawn.dtype is ph.int64
    assert ph.sort(drawn, -1).tolist() == [[0, 1, 2, 3, 4, 5]] * 50
    with pytest.raises(ValueError, match="4 samples of 3 positions"):
        ph.multinomial(ph.ones(3, device=device), 4)


def test_poisson_and_binomial_draws(device: ph.Device) -> None:
    rates = ph.full((N,), 3.5, device=device)
    drawn = ph.poisson(rates, Generator(8))
    assert drawn.dtype is ph.float32
    assert drawn.tolist() == ph.poisson(rates, Generator(8)).tolist()
    assert abs(drawn.numpy().mean() - 3.5) < 0.1
    assert abs(drawn.numpy().var() - 3.5) < 0.2
    successes = ph.binomial(ph.full((N,), 10.0, device=device), ph.tensor(0.2, device=device), Generator(9)).numpy()
    assert abs(successes.mean() - 2) < 0.05
    assert successes.max() <= 10


def test_integers_in_the_spellings_of_pytorch(device: ph.Device) -> None:
    assert ph.randint(5, (3,), device=device).shape == ph.randint(2, 5, size=(3,), device=device).shape == (3,)
    assert ph.randint(high=5, size=(3,), device=device).numpy().max() < 5
    x = ph.zeros((4, 2), dtype=ph.int32, device=device)
    assert set(ph.randint_like(x, 3, 5).numpy().reshape(-1).tolist()) <= {3, 4}
    assert ph.randint_like(x, 5).dtype is ph.int32
    assert ph.empty(1000, dtype=ph.int8, device=device).random_().numpy().min() >= 0
    assert set(ph.empty(100, device=device).random_(3).numpy().tolist()) == {0.0, 1.0, 2.0}
    with pytest.raises(TypeError, match="no shape"):
        ph.randint(5)


def test_means_and_deviations_may_be_tensors(device: ph.Device) -> None:
    mean = ph.tensor([[0.0], [100.0]], device=device, requires_grad=True)
    drawn = ph.normal(mean, ph.tensor([1.0, 0.0, 2.0], device=device))
    assert drawn.shape == (2, 3)
    assert drawn[:, 1].tolist() == [0.0, 100.0]
    assert not drawn.requires_grad
    assert ph.normal(2.0, 0.0, size=(2,), device=device).tolist() == [2.0, 2.0]
    with pytest.raises(ValueError, match="std is -1"):
        ph.normal(0.0, -1.0, (2,))


def test_bernoulli_in_the_spellings_of_pytorch(device: ph.Device) -> None:
    x = ph.zeros(2000, device=device)
    assert x.bernoulli().tolist() == [0.0] * 2000
    assert abs(ph.bernoulli(x, 0.25).numpy().mean() - 0.25) < 0.05
    assert abs(x.bernoulli_(0.25).numpy().mean() - 0.25) < 0.05
    assert ph.zeros(2, dtype=ph.bool_, device=device).bernoulli_(1.0).tolist() == [True, True]


def test_leaves_that_learn_are_not_overwritten_by_draws(device: ph.Device) -> None:
    x = ph.ones(3, device=device, requires_grad=True)
    with pytest.raises(AutogradError, match="normal_"):
        x.normal_()
    with pytest.raises(TypeError, match="int64"):
        ph.arange(3, device=device).normal_()


def test_state_of_the_default_generator() -> None:
    ph.manual_seed(11)
    assert ph.initial_seed() == 11
    state = ph.get_rng_state()
    first = ph.rand(3).tolist()
    ph.set_rng_state(state)
    assert ph.rand(3).tolist() == first
    assert ph.seed() == ph.initial_seed() != 11
    assert Generator("cpu").manual_seed(3).initial_seed() == Generator(3, device="cpu").initial_seed() == 3
