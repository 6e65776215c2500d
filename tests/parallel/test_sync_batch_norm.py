"""SyncBatchNorm and the exchanges of replicas, against batch norm on one device and against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyhal as ph
from polyhal import nn, optim
from polyhal.autograd import checkpoint
from polyhal.nn import functional as F
from polyhal.parallel import DataParallel, ReplicaError, Shards, current_replica

PAIR = ["numpy", "numpy:no_f64"]
THREE = [*PAIR, "sim:h200*2:0"]


def network() -> nn.Module:
    ph.manual_seed(0)
    convolution = [nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*convolution, nn.Linear(16, 6), nn.BatchNorm1d(6), nn.Linear(6, 1)).to("numpy")


def trained(model: nn.Module, loss: Any, captured: bool = False) -> np.ndarray:
    """Return the losses of 20 steps on batches far from zero."""
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def train(x: ph.Tensor, y: ph.Tensor) -> ph.Tensor:
        optimizer.zero_grad()
        value = loss(x, y)
        value.backward()
        optimizer.step()
        return value.detach()

    step = ph.jit(train) if captured else train
    rng = np.random.default_rng(0)
    values = []
    for _ in range(20):
        x = rng.standard_normal((7, 2, 4, 4)).astype(np.float32) + 3
        values.append(step(ph.tensor(x, device="numpy"), ph.tensor(x[:, 0, :1, 0], device="numpy")).item())
    return np.array(values)


def error(m: nn.Module, x: ph.Tensor, y: ph.Tensor) -> ph.Tensor:
    return F.mse_loss(m(x), y)


@pytest.fixture(scope="module")
def alone() -> tuple[np.ndarray, nn.Module]:
    model = network()
    return trained(model, lambda x, y: error(model, x, y)), model


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("shares", [[1, 1, 1], [3, 1, 0.01], [0.01, 3, 1]], ids=["even", "last-idle", "first-idle"])
def test_training_equals_batch_norm_on_one_device(
    alone: tuple[np.ndarray, nn.Module], shares: list[float], captured: bool
) -> None:
    """Seven rows are divided unevenly; with very unequal shares one device has none."""
    losses, plain = alone
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(network())
    model = DataParallel(converted, THREE, shares=shares)
    np.testing.assert_allclose(trained(model, lambda x, y: model.map(error, x, y), captured), losses, rtol=1e-5)
    expected = plain.state_dict()
    assert list(model.state_dict()) == list(expected)
    for name, x in model.state_dict().items():
        np.testing.assert_allclose(x.numpy(), expected[name].numpy(), rtol=1e-4, atol=1e-5, err_msg=name)


@given(
    st.lists(st.integers(0, 4), min_size=3, max_size=3).filter(lambda n: sum(n) > 1), st.booleans(), st.integers(0, 9)
)
@settings(max_examples=15, deadline=None)
def test_statistics_and_gradients_equal_the_whole_batch(counts: list[int], image: bool, seed: int) -> None:
    """The data is far from zero, where a mean of squares has no correct digit of the variance."""
    rng = np.random.default_rng(seed)
    shape = (sum(counts), 2, *((3,) if image else ()))
    x = (rng.standard_normal(shape) + 1000).astype(np.float32)
    weights = rng.standard_normal(shape).astype(np.float32)
    layer = nn.SyncBatchNorm(2, momentum=1.0, device="numpy")
    model = DataParallel(layer, THREE)
    start = np.cumsum([0, *counts])
    leaves = [ph.tensor(x[a:b], device=d, requires_grad=True) for a, b, d in zip(start, start[1:], THREE, strict=False)]
    scales = [ph.tensor(weights[a:b], device=d) for a, b, d in zip(start, start[1:], THREE, strict=False)]
    model.map(lambda m, x, w: m(x) * w, Shards(tuple(leaves)), Shards(tuple(scales))).sum().backward()

    wide, over = x.astype(np.float64), (0, 2)[: len(shape) - 1]
    n = x.size // 2
    var = wide.var(axis=over)
    # Values near 1000 have an error of 3e-5, half an ulp of them; so have means.
    np.testing.assert_allclose(layer.running_mean.numpy(), wide.mean(axis=over), rtol=1e-6)
    np.testing.assert_allclose(layer.running_var.numpy(), var * n / (n - 1), rtol=1e-3, atol=1e-7)
    if var.min() < 1e-2:  # ill-conditioned
        return
    broadcast = (slice(None), *([None] * (len(shape) - 2)))
    r = (1 / np.sqrt(var + layer.eps))[broadcast]
    normal = (wide - wide.mean(axis=over, keepdims=True)) * r
    g = weights.astype(np.float64)
    dx = r * (g - g.mean(axis=over, keepdims=True) - normal * (g * normal).mean(axis=over, keepdims=True))
    scale = float(np.abs(g).max() / np.sqrt(var.min()))
    for leaf, a, b in zip(leaves, start, start[1:], strict=False):
        if b > a:
            np.testing.assert_allclose(leaf.grad.numpy(), dx[a:b], rtol=0, atol=3e-3 * scale)


def test_outside_of_data_parallel_it_is_batch_norm() -> None:
    x = ph.tensor(np.random.default_rng(0).standard_normal((5, 3, 2)).astype(np.float32), device="numpy")
    plain, synchronized = nn.BatchNorm1d(3, device="numpy"), nn.SyncBatchNorm(3, device="numpy")
    for mode in (True, False):
        np.testing.assert_array_equal(
            synchronized.train(mode)(x).detach().numpy(), plain.train(mode)(x).detach().numpy()
        )
    assert current_replica() is None
    model = DataParallel(synchronized.eval(), PAIR)
    np.testing.assert_allclose(model(x).detach().numpy(), plain(x).detach().numpy(), rtol=1e-6)


def test_conversion_keeps_parameters_buffers_and_modes() -> None:
    model = network().eval()
    before = dict(model.named_parameters())
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    assert converted is model
    assert type(model[1]) is nn.SyncBatchNorm
    assert not model[1].training
    assert {n: id(p) for n, p in model.named_parameters()} == {n: id(p) for n, p in before.items()}
    single = nn.BatchNorm1d(3, affine=False, track_running_stats=False, momentum=None)
    new = nn.SyncBatchNorm.convert_sync_batchnorm(single)
    assert isinstance(new, nn.SyncBatchNorm)
    assert (new.weight, new.running_mean, new.momentum) == (None, None, None)
    with pytest.raises(ValueError, match="process_group is 3; expected None"):
        nn.SyncBatchNorm(3, process_group=3)  # type: ignore[arg-type]


def test_one_value_per_channel_is_refused() -> None:
    model = DataParallel(nn.SyncBatchNorm(3, device="numpy"), PAIR)
    with pytest.raises(ph.errors.ShapeError, match="all devices together have 1 values per channel"):
        model(ph.ones((1, 3), device="numpy"))


class Exchanging(nn.Module):
    """Runs a given function on its replica."""

    exchanges_with_replicas = True

    def __init__(self, program: Any) -> None:
        super().__init__()
        self.program = program

    def forward(self, x: ph.Tensor) -> Any:
        return self.program(current_replica(), x)


def run(program: Any, rows: int = 4, devices: list[str] = THREE) -> Any:
    return DataParallel(Exchanging(program), devices)(
        ph.reshape(ph.arange(rows, dtype=ph.float32, device="numpy"), (rows, 1))
    )


def test_layers_gather_and_add() -> None:
    gathered = run(lambda r, x: ph.reshape(r.all_gather(x, -2), (1, -1)), 4)
    assert gathered.tolist() == [[0, 1, 2, 3]] * 3
    added = run(lambda r, x: x + r.all_reduce(x.sum()), 2)
    assert added.tolist() == [[1], [2]]
    assert run(lambda r, x: (x.mean(), r.all_counts(len(x)))[1], 4) == (2, 1, 1)


def test_diverging_replicas_raise_with_their_positions() -> None:
    with pytest.raises(ReplicaError, match="numpy: all_gather, numpy:no_f64: finished"):
        run(lambda r, x: r.all_gather(x) if len(x) == 2 else x, 3, PAIR)
    with pytest.raises(ZeroDivisionError):
        run(lambda r, x: 1 / 0 if len(x) == 1 else r.all_gather(x), 3, PAIR)


def test_exchanges_in_a_checkpoint_are_refused() -> None:
    def program(replica: Any, x: ph.Tensor) -> ph.Tensor:
        x = x.detach().requires_grad_()
        return checkpoint(lambda x: x * replica.all_reduce(x.sum()), x)

    with pytest.raises(ReplicaError, match="leave the layer that does so out of the checkpoint"):
        run(program)
