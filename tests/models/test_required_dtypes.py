"""Training on a device with only bool, int32 and float32 has the results of a device with all dtypes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import TEST_DEVICES

import polyhal as ph
from polyhal import nn, optim
from polyhal.data import DataLoader, TensorDataset, TokenWindows
from polyhal.hal import dtypes
from polyhal.hal.errors import UnsupportedDTypeError
from polyhal.hal.testing.kit.core_only import core_only
from polyhal.models import GPT, GPTConfig
from polyhal.nn import functional as F
from polyhal.random import Generator

SMALL = "numpy:small"
Losses = list[float]


@pytest.fixture(autouse=True)
def no_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """No op may fall back to the host."""
    monkeypatch.setenv("POLYHAL_FALLBACK", "error")


def _step(captured: bool, optimizer: Any, loss_of: Callable[..., Any]) -> Callable[..., Any]:
    def step(*batch: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        return loss

    return ph.jit(step) if captured else step


def _sine(device: ph.Device, captured: bool, folder: Path) -> Losses:
    """Run the README's program, with fewer steps."""
    x = np.linspace(-3, 3, 64, dtype=np.float32)[:, None]
    inputs, targets = ph.tensor(x, device=device), ph.tensor(np.sin(x), device=device)
    model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
    step = _step(captured, optim.AdamW(model.parameters(), lr=1e-2), lambda: F.mse_loss(model(inputs), targets))
    losses = [step().item() for _ in range(6)]
    ph.save(model.state_dict(), folder / "sine")
    model.load_state_dict(ph.load(folder / "sine"))
    return [*losses, step().item()]


def _cnn(device: ph.Device, captured: bool, folder: Path) -> Losses:
    """Train convolutions, batch norm, pooling and dropout on shuffled batches with int64 labels, and save a checkpoint.

    A bias before batch norm has only rounding errors as a gradient, which Adam would scale to full steps.
    """
    rng = np.random.default_rng(0)
    images = rng.normal(size=(48, 1, 8, 8)).astype(np.float32)
    labels = (images.mean((1, 2, 3)) > 0).astype(np.int64) + (images[:, 0, 0, 0] > 0)
    parts = [nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    model = nn.Sequential(*parts, nn.Dropout(0.1), nn.Linear(64, 3)).to(device)
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    step = _step(captured, optimizer, lambda x, y: F.cross_entropy(model(x), y))
    loader = DataLoader(TensorDataset(images, labels), batch_size=16, shuffle=True, device=device, seed=3)
    losses = [step(x, y).item() for _ in range(2) for x, y in loader]
    ph.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "cnn")
    saved = ph.load(folder / "cnn")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    losses += [step(x, y).item() for x, y in loader]
    model.eval()
    guesses = model(ph.tensor(images, device=device)).argmax(1)
    return [*losses, (guesses == ph.tensor(labels, device=device)).to(ph.float32).mean().item()]


def _gpt(device: ph.Device, captured: bool, folder: Path) -> Losses:
    """Train embeddings, attention and cross entropy on windows of a text; dropout only eagerly, as its graph is large."""
    config = GPTConfig(vocab_size=17, block_size=8, n_layer=1, n_head=2, n_embd=8, dropout=0.0 if captured else 0.1)
    model = GPT(config, device=device)
    tokens = np.random.default_rng(1).integers(0, 17, 400)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    step = _step(captured, optimizer, lambda x, y: F.cross_entropy(model(x).reshape(-1, 17), y.reshape(-1)))
    loader = DataLoader(TokenWindows(tokens, 8), batch_size=6, shuffle=True, device=device, seed=5)
    batches = iter(loader)
    return [step(*next(batches)).item() for _ in range(4)]


def _losses(program: Callable[..., Losses], device: ph.Device | str, captured: bool, folder: Path) -> Losses:
    ph.manual_seed(0)
    return program(ph.Device(device), captured, folder)


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("program", [_sine, _cnn, _gpt])
def test_a_device_of_three_dtypes_trains(program: Callable[..., Losses], captured: bool, tmp_path: Path) -> None:
    small = _losses(program, SMALL, captured, tmp_path)
    # Sums of float32 in another order: 1e-6 relative at each step, which a few steps of Adam amplify.
    np.testing.assert_allclose(small, _losses(program, "numpy", captured, tmp_path), rtol=1e-3)


@pytest.mark.parametrize("name", TEST_DEVICES)
def test_any_device_reduced_to_three_dtypes_trains(name: str, tmp_path: Path) -> None:
    reduced = core_only(ph.Device(name), dtypes.REQUIRED)
    np.testing.assert_allclose(
        _losses(_sine, reduced, False, tmp_path), _losses(_sine, "numpy", False, tmp_path), rtol=1e-3
    )


@pytest.fixture
def both() -> tuple[ph.Device, ph.Device]:
    return ph.Device(SMALL), ph.Device("numpy")


@pytest.mark.parametrize(
    "draw",
    [
        lambda g, d: ph.rand(9, generator=g, device=d),
        lambda g, d: ph.randn(9, generator=g, device=d),
        lambda g, d: ph.randint(3, 1000, (9,), generator=g, device=d),
        lambda g, d: ph.randint(0, 2**31 - 1, (9,), generator=g, device=d),
        lambda g, d: ph.multinomial(ph.tensor([0.1, 0.2, 0.7], device=d), 2, generator=g),
        lambda g, d: ph.randperm(9, generator=g, device=d),
    ],
)
def test_random_numbers_have_the_bits_of_other_devices(draw: Any, both: tuple[ph.Device, ph.Device]) -> None:
    for seed in (0, 2**40 + 5):
        small, numpy = (draw(Generator(seed), device).numpy() for device in both)
        np.testing.assert_array_equal(small, numpy)


def test_integers_are_int32_where_int64_is_missing(both: tuple[ph.Device, ph.Device]) -> None:
    x = ph.tensor([3, 1, 2], device=SMALL)
    for result in (x, x.sum(), x.argmax(), x.sort()[1], ph.arange(3, device=SMALL), x.to(ph.int64), x.cumsum(0)):
        assert result.dtype is ph.int32
    assert ph.tensor([1, 2], device="numpy").to(SMALL).dtype is ph.int32
    assert x.to("numpy").dtype is ph.int32
    assert x.sum().item() == 6


def test_numbers_that_do_not_fit_are_refused() -> None:
    wide = np.array([1, 2**31])
    with pytest.raises(UnsupportedDTypeError, match="2147483648 does not fit int32, which replaces int64"):
        ph.tensor(wide, device=SMALL)
    with pytest.raises(UnsupportedDTypeError, match="does not fit int32"):
        ph.tensor(wide, device="numpy").to(SMALL)
    with pytest.raises(UnsupportedDTypeError, match="does not fit int32"):
        list(DataLoader(TensorDataset(wide), batch_size=2, device=SMALL))
    with pytest.raises(UnsupportedDTypeError, match="no uint32 on this device"):
        ph.randint(0, 2**31, (2,), device=SMALL)
    with pytest.raises(UnsupportedDTypeError, match="no float64 on this device"):
        ph.zeros(2, dtype=ph.float64, device=SMALL)


def test_a_captured_copy_from_another_device_arrives_in_int32() -> None:
    @ph.jit
    def moved(x: ph.Tensor) -> ph.Tensor:
        return (x + 1).to(SMALL) * 2

    x = ph.tensor([1, 2, 3], device="numpy")
    for _ in range(3):
        result = moved(x)
        assert result.dtype is ph.int32
        assert result.tolist() == [4, 6, 8]


def test_weights_of_another_device_are_loaded(tmp_path: Path) -> None:
    ph.save(nn.BatchNorm1d(3).to("numpy").state_dict(), tmp_path / "norm")
    norm = nn.BatchNorm1d(3).to(SMALL)
    norm.load_state_dict(ph.load(tmp_path / "norm"))
    norm(ph.ones((4, 3), device=SMALL))
    assert norm.state_dict()["num_batches_tracked"].item() == 1
