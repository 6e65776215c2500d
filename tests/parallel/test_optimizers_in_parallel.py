"""Optimizers and related utilities with parameters on several devices: equal to one device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import polyhal as ph
from polyhal import amp, nn, optim
from polyhal.nn import functional as F
from polyhal.nn.utils import clip_grad_value_, parameters_to_vector, vector_to_parameters
from polyhal.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from polyhal.parallel import DataParallel

Step = Callable[[], ph.Tensor]
X = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)


def loss_of(model: nn.Module) -> ph.Tensor:
    return F.mse_loss(model(ph.tensor(X, device="numpy")), ph.tensor(np.tanh(X[:, :3]), device="numpy"))


def scaled_and_clipped(model: nn.Module) -> Step:
    optimizer, scaler = optim.AdamW(model.parameters(), lr=1e-2), amp.GradScaler(2.0**10)

    def step() -> ph.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_grad_value_(model.parameters(), 0.05)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


def averaged(model: nn.Module) -> Step:
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    means = [AveragedModel(model), AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))]

    def step() -> ph.Tensor:
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        scheduler.step()
        for mean in means:
            mean.update_parameters(model)
        return loss_of(means[0]).detach() + loss_of(means[1]).detach()

    return step


def quasi_newton(model: nn.Module) -> Step:
    optimizer = optim.LBFGS(model.parameters(), lr=0.5, line_search_fn="strong_wolfe", max_iter=4)

    def closure() -> ph.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        return loss

    return lambda: optimizer.step(closure).detach()


def saved_and_flattened(model: nn.Module) -> Step:
    optimizers = [optim.AdamW(model.parameters(), lr=1e-2)]

    def step() -> ph.Tensor:
        loss = loss_of(model)
        optimizers[-1].zero_grad()
        loss.backward()
        optimizers[-1].step()
        other = optim.AdamW(model.parameters(), lr=1e-2)
        other.load_state_dict(optimizers[-1].state_dict())
        optimizers.append(other)
        vector_to_parameters(parameters_to_vector(model.parameters()) * 0.99, model.parameters())
        return loss.detach()

    return step


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("make", [scaled_and_clipped, averaged, quasi_newton, saved_and_flattened])
def test_results_equal_one_device(make: Callable[[nn.Module], Step], captured: bool) -> None:
    if captured and make in (quasi_newton, saved_and_flattened):
        pytest.skip("it looks at values, or makes another optimizer at each step")
    losses = []
    for devices in (["numpy"], ["numpy", "numpy:no_f64"]):
        ph.manual_seed(0)
        model = DataParallel(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to("numpy"), devices)
        step = make(model)
        step = ph.jit(step) if captured else step
        losses.append([step().item() for _ in range(6)])
    alone, several = losses
    assert alone[-1] < alone[0]
    np.testing.assert_allclose(several, alone, rtol=1e-4)
