"""Averages of weights against PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import swa_utils as theirs

import polyhal as ph
from polyhal import nn, optim
from polyhal.optim import swa_utils as ours

FUNCTIONS: dict[str, Any] = {
    "equal": lambda m: {},
    "exponential": lambda m: (
        {"avg_fn": m.get_ema_avg_fn(0.8)} if m is ours else {"multi_avg_fn": m.get_ema_multi_avg_fn(0.8)}
    ),
    "exponential, lists": lambda m: {"multi_avg_fn": m.get_ema_multi_avg_fn(0.8)},
    "with buffers": lambda m: {"avg_fn": lambda a, c, n: a + (c - a) / (n + 1), "use_buffers": True},
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_averages_of_a_model(name: str, device: ph.Device) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).to(device)
    reference = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    a = ours.AveragedModel(model, **FUNCTIONS[name](ours))
    b = theirs.AveragedModel(reference, **FUNCTIONS[name](theirs))
    for step in range(4):
        values = {
            k: np.random.default_rng(step).normal(size=v.shape).astype(np.float32) + len(k)
            for k, v in reference.state_dict().items()
            if v.is_floating_point()
        }
        model.load_state_dict({**model.state_dict(), **{k: ph.tensor(v, device=device) for k, v in values.items()}})
        reference.load_state_dict({**reference.state_dict(), **{k: torch.tensor(v) for k, v in values.items()}})
        a.update_parameters(model)
        b.update_parameters(reference)
        for key, value in b.state_dict().items():
            # Four averages, each a rounding of values below 32.
            np.testing.assert_allclose(a.state_dict()[key].numpy(), value.numpy(), rtol=1e-6, atol=1e-5)


def test_the_rate_of_averaging() -> None:
    x = ph.zeros((1,), device="numpy", requires_grad=True)
    y = torch.zeros(1, requires_grad=True)
    for strategy in ("cos", "linear"):
        a, b = optim.SGD([x], lr=0.5), torch.optim.SGD([y], lr=0.5)
        schedule = ours.SWALR(a, 0.1, anneal_epochs=5, anneal_strategy=strategy)  # type: ignore[arg-type]
        expected = theirs.SWALR(b, 0.1, anneal_epochs=5, anneal_strategy=strategy)
        for _ in range(8):
            assert schedule.get_last_lr() == pytest.approx(expected.get_last_lr())
            b.step()
            schedule.step()
            expected.step()


def test_statistics_of_batch_norms_are_those_of_the_data() -> None:
    batches = [np.random.default_rng(i).normal(i, 2, size=(8, 3)).astype(np.float32) for i in range(3)]
    model, reference = nn.BatchNorm1d(3).to("numpy"), torch.nn.BatchNorm1d(3)
    ours.update_bn([(ph.tensor(b, device="numpy"), 0) for b in batches], model)
    theirs.update_bn([(torch.tensor(b), 0) for b in batches], reference)
    np.testing.assert_allclose(model.running_mean.numpy(), reference.running_mean.numpy(), rtol=1e-5)
    np.testing.assert_allclose(model.running_var.numpy(), reference.running_var.numpy(), rtol=1e-5)
    assert model.momentum == 0.1
