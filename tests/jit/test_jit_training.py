"""Captured training steps against the same steps run op by op: equal losses, parameters, optimizer state and generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from devices import PARITY_DEVICES, TEST_DEVICES

import polyhal as ph
from polyhal import Device, Tensor, amp, jit, nn, optim
from polyhal.models import CNN, GPT, MLP, GPTConfig
from polyhal.nn import functional as F
from polyhal.optim import Optimizer

pytestmark = pytest.mark.slow

STEPS = 5
Batch = tuple[Tensor, Tensor]


FEW_UNITS = 64 * float(np.finfo(np.float32).eps)
HALF_UNITS = 4 * float(np.finfo(np.float16).eps)


def near(device: Device, captured: Any, eager: Any, within: float = FEW_UNITS) -> None:
    """Equal to the last bit on NumPy; elsewhere fused kernels may contract products and sums, which costs a few ULPs a step.

    They may also leave out the rounding to half precision between ops.
    """
    if device.backend.info.backend == "numpy":
        np.testing.assert_array_equal(captured, eager)
    else:
        scale = np.abs(eager).max(initial=1e-6, where=np.isfinite(eager))
        np.testing.assert_allclose(captured, eager, rtol=0, atol=within * scale)


def mlp(device: Device) -> nn.Module:
    hidden = nn.Linear(16, 12, device=device)
    return nn.Sequential(
        MLP((6, 16), device=device), nn.GELU(), nn.Dropout(0.3), hidden, nn.LayerNorm(12, device=device)
    )


def vectors(device: Device, rng: np.random.Generator) -> Batch:
    x = ph.tensor(rng.standard_normal((8, 6)).astype(np.float32), device=device)
    return x, ph.tensor(rng.integers(0, 12, 8).astype(np.int32), device=device)


def images(device: Device, rng: np.random.Generator) -> Batch:
    x = ph.tensor(rng.standard_normal((4, 1, 4, 4)).astype(np.float32), device=device)
    return x, ph.tensor(rng.integers(0, 10, 4).astype(np.int32), device=device)


def tokens(device: Device, rng: np.random.Generator) -> Batch:
    x, y = (ph.tensor(rng.integers(0, 11, (2, 6)).astype(np.int32), device=device) for _ in range(2))
    return x, y


def gpt(device: Device) -> nn.Module:
    return GPT(GPTConfig(11, 8, n_layer=1, n_head=2, n_embd=8, dropout=0.2), device=device)


def loss_of(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    logits = model(x)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))


def state(model: nn.Module, optimizer: Optimizer) -> list[np.ndarray]:
    found = [*model.state_dict().values()]
    found += [v for s in optimizer.state_dict()["state"].values() for v in s.values() if isinstance(v, Tensor)]
    return [x.numpy() for x in found]


def compare(
    device: Device,
    build: Callable[[Device], nn.Module],
    draw: Callable[[Device, np.random.Generator], Batch],
    optimizer_of: Callable[[Any], Optimizer],
    step_of: Callable[[nn.Module, Optimizer], Callable[[Tensor, Tensor], Tensor]],
    batches: int = STEPS,
    within: float = FEW_UNITS,
) -> None:
    """Train twice from the same start, once captured, and compare everything that there is."""
    outcomes = []
    for captured in (False, True):
        ph.manual_seed(3)
        model, rng = build(device), np.random.default_rng(0)
        optimizer = optimizer_of(model.parameters())
        step = step_of(model, optimizer)
        run = jit(step) if captured else step
        losses = [run(*draw(device, rng)).item() for _ in range(batches)]
        outcomes.append((losses, state(model, optimizer), ph.random.default_generator.get_state()))
        if captured:
            assert len(run.graphs) == 1  # type: ignore[attr-defined]
    (eager, eager_state, eager_random), (replayed, replayed_state, replayed_random) = outcomes
    near(device, np.array(replayed), np.array(eager), within)
    for a, b in zip(replayed_state, eager_state, strict=True):
        near(device, a, b, within)
    assert replayed_random == eager_random


def plain(model: nn.Module, optimizer: Optimizer) -> Callable[[Tensor, Tensor], Tensor]:
    schedule = optim.WarmupCosine(optimizer, 2, STEPS)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        return loss

    return step


ABOVE_ROUNDING = 1e-5
"""An epsilon of Adam that makes no steps of gradients that are only rounding, as those of the biases of keys are."""
OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "sgd": lambda ps: optim.SGD(ps, lr=0.1),
    "momentum": lambda ps: optim.SGD(ps, lr=0.1, momentum=0.9, dampening=0.5, weight_decay=0.01),
    "adam": lambda ps: optim.Adam(ps, lr=0.01, weight_decay=0.1),
    "adamw": lambda ps: optim.AdamW(ps, lr=0.01, eps=ABOVE_ROUNDING),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_mlp_with_dropout_clipping_and_a_schedule(device: Device, name: str) -> None:
    compare(device, mlp, vectors, OPTIMIZERS[name], plain)


@pytest.mark.parametrize(("build", "draw"), [(lambda d: CNN(4, 10, 4, device=d), images), (gpt, tokens)])
def test_a_cnn_and_a_gpt(device: Device, build: Any, draw: Any) -> None:
    compare(device, build, draw, OPTIMIZERS["adamw"], plain)


@pytest.mark.parametrize("name", [n for n in PARITY_DEVICES if n not in TEST_DEVICES])
def test_a_gpt_through_another_interface(name: str) -> None:
    compare(Device(name), gpt, tokens, OPTIMIZERS["adamw"], plain)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_loss_scaling_leaves_bad_steps_out(device: Device, name: str) -> None:
    scalers: list[amp.GradScaler] = []

    def scaled(model: nn.Module, optimizer: Optimizer) -> Callable[[Tensor, Tensor], Tensor]:
        scaler = amp.GradScaler(1024.0, growth_interval=3)
        scalers.append(scaler)

        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            with amp.autocast("float16"):
                loss = loss_of(model, x, y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            return loss

        return step

    def spoiled(device: Device, rng: np.random.Generator) -> Batch:
        x, y = vectors(device, rng)
        calls.append(None)
        return (x * float("inf") if len(calls) % 6 in (1, 4) else x), y

    calls: list[None] = []

    def build(device: Device) -> nn.Module:
        calls.clear()
        return mlp(device)

    def finite(model: nn.Module, optimizer: Optimizer) -> Callable[[Tensor, Tensor], Tensor]:
        step = scaled(model, optimizer)

        def run(x: Tensor, y: Tensor) -> Tensor:
            return ph.where(ph.isfinite(loss := step(x, y)), loss, -1.0)

        return run

    # Captured products write gradients of weights in float32, which eager steps round to half precision.
    compare(device, build, spoiled, OPTIMIZERS[name], finite, batches=6, within=HALF_UNITS)
    eager, replayed = (s.state_dict() for s in scalers)
    assert eager == replayed
    assert eager["scale"] < 1024.0


def test_accumulation_in_one_step_and_in_two(device: Device) -> None:
    def halves(model: nn.Module, optimizer: Optimizer) -> Callable[[Tensor, Tensor], Tensor]:
        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            losses = [loss_of(model, a, b) / 2 for a, b in ((x[:4], y[:4]), (x[4:], y[4:]))]
            for loss in losses:
                loss.backward()
            optimizer.step()
            return losses[0] + losses[1]

        return step

    compare(device, mlp, vectors, OPTIMIZERS["adam"], halves)
    outcomes = []
    for captured in (False, True):
        ph.manual_seed(3)
        model, rng = mlp(device), np.random.default_rng(0)
        optimizer = optim.AdamW(model.parameters(), lr=0.01)

        def gather(x: Tensor, y: Tensor, model: nn.Module = model) -> None:
            loss_of(model, x, y).backward()

        def update(optimizer: Optimizer = optimizer) -> None:
            optimizer.step()
            optimizer.zero_grad()

        one, two = (jit(gather), jit(update)) if captured else (gather, update)
        for _ in range(STEPS):
            for _ in range(3):
                one(*vectors(device, rng))
            two()
        outcomes.append(state(model, optimizer))
        if captured:
            assert len(one.graphs) == 2  # type: ignore[attr-defined]  # without gradients, and with some
            assert len(two.graphs) == 1  # type: ignore[attr-defined]
    for a, b in zip(*outcomes, strict=True):
        near(device, b, a)


def test_gradients_flow_out_of_a_captured_forward_pass(device: Device) -> None:
    outcomes = []
    for captured in (False, True):
        ph.manual_seed(3)
        model, rng = mlp(device), np.random.default_rng(0)
        run = jit(lambda x, m=model: m(x)) if captured else model
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        losses, slopes = [], []
        for _ in range(STEPS):
            x, y = vectors(device, rng)
            scale = ph.ones((6,), device=device).requires_grad_()
            optimizer.zero_grad()
            loss = F.cross_entropy(run(x * scale), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            assert scale.grad is not None
            slopes.append(scale.grad.numpy())
        outcomes.append((np.array(losses), np.array(slopes), *state(model, optimizer)))
    for a, b in zip(*outcomes, strict=True):
        near(device, b, a)


def test_two_forward_passes_before_their_backward_passes_keep_their_dropout(numpy_device: Device) -> None:
    model = mlp(numpy_device)
    run = jit(lambda x: model(x))
    x, _ = vectors(numpy_device, np.random.default_rng(0))
    weight = ph.tensor(np.random.default_rng(1).standard_normal((8, 12)).astype(np.float32), device=numpy_device)
    for _ in range(3):
        run(x)
    found: list[Sequence[np.ndarray]] = []
    for function in (run, model):
        ph.manual_seed(5)
        model.zero_grad()
        first, _ = function(x), function(x * 2)
        first.backward(weight)
        found.append([p.grad.numpy() for p in model.parameters()])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_recomputed_regions_accumulation_loss_scaling_and_dropout_together(device: Device) -> None:
    """A step of two micro-batches in half precision; batches without finite gradients must change nothing but the scale."""
    scalers: list[amp.GradScaler] = []

    def spoiled(device: Device, rng: np.random.Generator) -> Batch:
        x, y = vectors(device, rng)
        return (x * float("inf") if rng.integers(3) == 0 else x), y

    def step_of(model: nn.Module, optimizer: Optimizer) -> Callable[[Tensor, Tensor], Tensor]:
        scaler = amp.GradScaler(1024.0, growth_interval=5)
        scalers.append(scaler)

        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            total = ph.zeros((), device=device)
            for part in (slice(0, 4), slice(4, 8)):
                with amp.autocast("float16"):
                    loss = F.cross_entropy(ph.checkpoint(model, x[part]), y[part]) / 2
                scaler.scale(loss).backward()
                total = total + loss.detach()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            return ph.where(ph.isfinite(total), total, -1.0)

        return step

    compare(device, mlp, spoiled, OPTIMIZERS["adamw"], step_of, batches=8, within=HALF_UNITS)
    eager, replayed = (s.state_dict() for s in scalers)
    assert eager == replayed
    assert eager["scale"] < 1024.0
