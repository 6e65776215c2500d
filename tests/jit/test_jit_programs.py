"""Programs as people write them for eager execution: captured, each step has the same loss."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import polyhal as ph
from polyhal import Device, Tensor, jit, nn, optim
from polyhal.nn import functional as F

Step = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def batch(device: Device, rows: int, width: int = 6, seed: int = 0) -> Tensor:
    values = np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)
    return ph.tensor(values, device=device)


def same_losses(device: Device, program: Callable[[Callable[[Step], Step], Device], Iterator[float]]) -> None:
    """Run a program with captured steps and without, from the same seed."""
    losses = []
    for compiled in (lambda f: f, jit):
        ph.manual_seed(0)
        losses.append(list(program(compiled, device)))
    np.testing.assert_allclose(losses[1], losses[0], rtol=2e-5, atol=1e-6)


def small_model(device: Device) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)).to(device)


def test_batch_sizes_that_change(device: Device) -> None:
    def program(compiled: Callable[[Step], Step], device: Device) -> Iterator[float]:
        model = small_model(device)
        optimizer = optim.AdamW(model.parameters(), lr=1e-2)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            y = model(x)
            # Control flow on shapes.
            loss = (y**2).mean() if x.shape[0] > 4 else y.abs().mean()
            loss.backward()
            optimizer.step()
            return loss

        run = compiled(step)
        for i, rows in enumerate((8, 8, 8, 3, 8, 3, 3, 8, 5, 3)):
            yield run(batch(device, rows, seed=i)).item()

    same_losses(device, program)


def test_schedules_and_clipping(device: Device) -> None:
    def program(compiled: Callable[[Step], Step], device: Device) -> Iterator[float]:
        model = small_model(device)
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        schedule = optim.StepLR(optimizer, 2, 0.5)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            return loss

        run = compiled(step)
        for i in range(8):
            yield run(batch(device, 8, seed=i)).item()
            schedule.step()  # outside of the step
            if i == 5:
                optimizer.param_groups[0]["lr"] = 0.03

    same_losses(device, program)


def test_dropout_draws_what_eager_steps_draw(device: Device) -> None:
    def program(compiled: Callable[[Step], Step], device: Device) -> Iterator[float]:
        model = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 1)).to(device)
        optimizer = optim.SGD(model.parameters(), lr=0.01)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        run = compiled(step)
        for i in range(8):
            model.train(i % 4 != 3)
            yield run(batch(device, 8, seed=i)).item()

    same_losses(device, program)


def test_gradient_accumulation(device: Device) -> None:
    def program(compiled: Callable[[Step], Step], device: Device) -> Iterator[float]:
        model = small_model(device)
        optimizer = optim.AdamW(model.parameters(), lr=1e-2)

        def accumulate(x: Tensor) -> Tensor:
            loss = (model(x) ** 2).mean() / 3
            loss.backward()
            return loss

        run = compiled(accumulate)
        for i in range(15):
            yield run(batch(device, 4, seed=i)).item()
            if i % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()

    same_losses(device, program)


def test_gradients_that_accumulate_inside_by_a_flag(device: Device) -> None:
    def program(compiled: Callable[[Step], Step], device: Device) -> Iterator[float]:
        model = small_model(device)
        optimizer = optim.SGD(model.parameters(), lr=0.05)

        def step(x: Tensor, update: bool) -> Tensor:
            loss = (model(x) ** 2).mean()
            loss.backward()
            if update:
                optimizer.step()
                optimizer.zero_grad()
            return loss

        run = compiled(step)
        for i in range(12):
            yield run(batch(device, 4, seed=i), i % 3 == 2).item()

    same_losses(device, program)


def test_two_models_that_train_against_each_other(device: Device) -> None:
    def program(compiled: Callable[[Step], Step], device: Device) -> Iterator[float]:
        generator, critic = nn.Linear(6, 6).to(device), nn.Linear(6, 1).to(device)
        first = optim.SGD(generator.parameters(), lr=0.05)
        second = optim.SGD(critic.parameters(), lr=0.05)

        def step(x: Tensor) -> Tensor:
            for p in critic.parameters():
                p.requires_grad = True
            second.zero_grad()
            loss = critic(generator(x).detach()).mean() - critic(x).mean()
            loss.backward()
            second.step()
            for p in critic.parameters():
                p.requires_grad = False
            first.zero_grad()
            other = -critic(generator(x)).mean()
            other.backward()
            first.step()
            return loss + other

        run = compiled(step)
        for i in range(8):
            yield run(batch(device, 4, seed=i)).item()

    same_losses(device, program)


@pytest.mark.parametrize("gated", [False, True])
def test_linear_layers_whose_results_meet(device: Device, gated: bool) -> None:
    def program(compiled: Callable[[Step], Step], device: Device) -> Iterator[float]:
        inner, a, b = (nn.Linear(6, 6).to(device) for _ in range(3))
        parameters = [p for layer in (inner, a, b) for p in layer.parameters()]
        optimizer = optim.AdamW(parameters, lr=1e-2)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            h = inner(x)
            # SwiGLU; the scores of attention with separate projections.
            loss = (F.silu(a(h)) * b(h)).mean() if gated else (a(h) * b(h)).sum()
            loss.backward()
            optimizer.step()
            return loss

        run = compiled(step)
        for i in range(6):
            yield run(batch(device, 4, seed=i)).item()

    same_losses(device, program)


def test_an_optimizer_of_the_user(device: Device) -> None:
    """Its learning rate is a Python number: noticed at the second recording, and run eagerly."""

    def program(compiled: Callable[[Step], Step], device: Device) -> Iterator[float]:
        model = small_model(device)
        group = {"lr": 0.1}

        def step(x: Tensor) -> Tensor:
            model.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            with ph.no_grad():
                for p in model.parameters():
                    assert p.grad is not None
                    p.add_(p.grad * -group["lr"])
            return loss

        run = compiled(step)
        for i in range(7):
            group["lr"] *= 0.8
            yield run(batch(device, 4, seed=i)).item()

    with pytest.warns(UserWarning, match="Python computes another number at each call"):
        same_losses(device, program)


def test_results_of_two_ops_never_share_memory_and_views_do(device: Device) -> None:
    def step(x: ph.Tensor) -> tuple[ph.Tensor, ...]:
        y = x + 1
        z = ph.zeros_like(x)
        z[...] = y
        return y, y * 1, y.T, z, z[0], x.exp(), x.exp()

    captured = ph.jit(step, warm_up=False)
    for _ in range(3):
        outcomes = []
        for run in (step, captured):
            results = run(ph.Tensor(np.arange(6, dtype=np.float32).reshape(2, 3), device=device))
            for number, result in enumerate(results):
                result.add_(10.0 * (number + 1))
            outcomes.append([r.numpy() for r in results])
        for expected, found in zip(*outcomes, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5)
