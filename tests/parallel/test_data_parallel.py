"""Data parallel training on several devices against training on one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from groups import MIXED, OPENCL

import polyhal as ph
from polyhal import nn, optim
from polyhal.models import GPT, GPTConfig
from polyhal.nn import functional as F
from polyhal.nn.utils import clip_grad_norm_
from polyhal.parallel import DataParallel

PAIR = ["numpy", "numpy:no_f64"]
EIGHT = [f"sim:h200*8:{i}" for i in range(8)]
ROWS, CONTEXT, STEPS = 7, 16, 8
CONFIG = GPTConfig(vocab_size=65, block_size=CONTEXT, n_layer=2, n_head=2, n_embd=16)
Loss = Callable[[ph.Tensor, ph.Tensor], ph.Tensor]


def gpt() -> GPT:
    ph.manual_seed(0)
    return GPT(CONFIG, device="numpy")


def losses(model: nn.Module, loss: Loss, device: str, captured: bool = False, **options: Any) -> np.ndarray:
    """Return the losses of 8 steps of AdamW with clipping, on fixed batches."""
    optimizer = optim.AdamW(model.parameters(), lr=1e-2, **options)
    rng = np.random.default_rng(0)

    def train(x: ph.Tensor, y: ph.Tensor) -> ph.Tensor:
        optimizer.zero_grad()
        value = loss(x, y)
        value.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return value.detach()

    step = ph.jit(train) if captured else train
    values = []
    for _ in range(STEPS):
        x = rng.integers(0, 65, (ROWS, CONTEXT)).astype(np.int32)
        y = x * 7 % 65
        values.append(step(ph.tensor(x, device=device), ph.tensor(y, device=device)).item())
    return np.array(values)


def parallel_losses(devices: list[str], captured: bool = False, **options: Any) -> np.ndarray:
    model = DataParallel(gpt(), devices, bucket_bytes=10_000, **options)
    return losses(model, lambda x, y: model.map(GPT.loss, x, y), devices[0], captured)


@pytest.fixture(scope="module")
def alone() -> np.ndarray:
    model = gpt()
    return losses(model, model.loss, "numpy")


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("devices", [PAIR[:1], PAIR, EIGHT], ids=["one", "two", "eight"])
def test_training_on_several_devices_equals_training_on_one(
    alone: np.ndarray, devices: list[str], captured: bool
) -> None:
    """The batch of 7 rows is divided unevenly, and one of eight devices is idle."""
    values = parallel_losses(devices, captured)
    assert values[-1] < values[0] * 0.9
    np.testing.assert_allclose(values, alone, rtol=1e-5)
    if devices is PAIR:
        assert np.array_equal(values, parallel_losses(devices, captured)), "another run gives other bits"


class Bigram(nn.Module):
    """A model of few ops, for devices that compile slowly."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(65, 16)
        self.head = nn.Linear(16, 65)

    def forward(self, x: ph.Tensor, y: ph.Tensor) -> ph.Tensor:
        return F.cross_entropy(self.head(self.embedding(x)).reshape(-1, 65), y.reshape(-1))


def bigram() -> Bigram:
    ph.manual_seed(0)
    return Bigram().to("numpy")


def test_devices_of_several_vendors_train_one_model() -> None:
    devices = [d for d in (*OPENCL[:1], "wgpu", "numpy") if d in MIXED]
    parallel = DataParallel(bigram(), devices, bucket_bytes=2_000)
    values = losses(parallel, lambda x, y: parallel.map(Bigram.forward, x, y), devices[0], captured=True)
    alone = bigram()
    np.testing.assert_allclose(values, losses(alone, alone, "numpy"), rtol=1e-5)
    assert values[-1] < values[0] * 0.9


def test_devices_with_unequal_numbers_of_rows(alone: np.ndarray) -> None:
    np.testing.assert_allclose(parallel_losses(PAIR, shares=[5, 2]), alone, rtol=1e-5)


class Regression(nn.Module):
    """A small model with a buffer, whose forward pass returns several results."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)
        self.second = nn.Linear(8, 3)

    def forward(self, x: ph.Tensor, scale: float = 1.0) -> dict[str, Any]:
        hidden = self.norm(self.first(x)).tanh()
        return {"out": self.second(hidden) * scale, "sizes": (hidden.mean(), 5)}


def regression(devices: list[str]) -> DataParallel:
    ph.manual_seed(1)
    return DataParallel(Regression().to("numpy"), devices)


def test_results_are_joined_in_the_order_of_the_rows() -> None:
    model = regression(PAIR).eval()
    x = ph.tensor(np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32), device="numpy")
    joined = model(x, scale=2.0)
    on_one = model.module.to("numpy")(x, scale=2.0)
    np.testing.assert_allclose(joined["out"].detach().numpy(), on_one["out"].detach().numpy(), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(joined["sizes"][0].item(), on_one["sizes"][0].item(), rtol=1e-5)
    assert joined["sizes"][1] == 5


def test_every_parameter_and_its_state_have_one_owner() -> None:
    model = DataParallel(gpt(), PAIR)
    plain = gpt()
    assert [n for n, _ in model.named_parameters()] == [n for n, _ in plain.named_parameters()]
    assert list(model.state_dict()) == list(plain.state_dict())
    assert {p.device.name for p in model.parameters()} == set(PAIR)
    sizes = [sum(p.size for n, p in model.named_parameters() if model.owner(n) is d) for d in model.devices]
    assert max(sizes) < 1.1 * min(sizes)
    optimizer = optim.AdamW(model.parameters())
    ids = ph.zeros((2, 4), dtype=ph.int32, device="numpy")
    model.map(GPT.loss, ids, ids).backward()
    optimizer.step()
    for p, state in optimizer.state.items():
        assert state["exp_avg"].device is p.device
    other = gpt()
    other.load_state_dict(model.state_dict())
    for name, p in other.named_parameters():
        assert np.array_equal(p.numpy(), model.state_dict()[name].numpy())


def test_gradients_accumulate_and_shards_go_to_their_devices_directly() -> None:
    model, plain = DataParallel(gpt(), PAIR, shares=[2, 1]), gpt()
    rng = np.random.default_rng(3)
    for _ in range(2):
        x, y = (rng.integers(0, 65, (6, 8)).astype(np.int32) for _ in range(2))
        shards = model.shard(x, y)
        assert [t.shape for t in shards[0].tensors] == [(4, 8), (2, 8)]
        assert [t.device.name for t in shards[0].tensors] == PAIR
        model.map(GPT.loss, *shards).backward()
        plain.loss(ph.tensor(x, device="numpy"), ph.tensor(y, device="numpy")).backward()
    for (name, p), q in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert p.grad is not None
        assert q.grad is not None
        assert p.grad.device is p.device
        bound = 1e-5 * float(q.grad.abs().max().item())
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=0, atol=bound, err_msg=name)


def test_unused_and_frozen_parameters() -> None:
    ph.manual_seed(0)
    layers = nn.ModuleList([nn.Linear(3, 3, device="numpy") for _ in range(3)])
    layers[1].requires_grad_(False)
    model = DataParallel(layers, PAIR)
    x = ph.ones((4, 3), device="numpy")
    model.map(lambda m, x: F.mse_loss(m[1](m[0](x)), ph.zeros_like(x)), x).backward()
    assert layers[0].weight.grad is not None
    assert layers[1].weight.grad is None
    unused = layers[2].weight.grad
    assert unused is None or not unused.numpy().any()


def test_wrong_calls_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"shares are \[1\.0\]; expected 2 positive numbers, one per device"):
        DataParallel(gpt(), PAIR, shares=[1])
    with pytest.raises(ValueError, match="numpy occurs twice, as numpy; expected each device once"):
        DataParallel(gpt(), ["numpy", "numpy"])
    model = DataParallel(gpt(), PAIR)
    with pytest.raises(ValueError, match="the model is on numpy, numpy:no_f64; expected only a dtype"):
        model.to("numpy")
    with pytest.raises(ValueError, match="assign=True would move parameters away from the devices"):
        model.load_state_dict(gpt().state_dict(), assign=True)
    x = ph.zeros((4, 3), dtype=ph.int32, device="numpy")
    with pytest.raises(ph.errors.ShapeError, match=r"the arguments have \[3, 4\] rows"):
        model.map(GPT.loss, x, x[:3])
    with pytest.raises(ph.errors.ShapeError, match="no argument is a tensor with rows"):
        model(3)


def test_captured_steps_of_two_models_are_recorded_once_each() -> None:
    """Placing the parameters of replicas does not change the structure: a captured step would be recorded again."""
    calls = []

    def step_of(model: DataParallel) -> Callable[[ph.Tensor], ph.Tensor]:
        def step(x: ph.Tensor) -> ph.Tensor:
            calls.append(model)
            return model(x).sum()

        return ph.jit(step)

    first, second = (step_of(DataParallel(nn.Linear(3, 2), ["numpy", "numpy:no_f64"])) for _ in range(2))
    x = ph.ones((4, 3), device="numpy")
    for _ in range(3):
        first(x), second(x)
    recorded = len(calls)
    for _ in range(3):
        first(x), second(x)
    assert len(calls) == recorded
