"""Layers in half precision: the dtype stays, nothing overflows, and results are near those in float32."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest

import polyhal as ph
from polyhal import nn
from polyhal.models import GPT, GPTConfig, generate

from .compare import array


@pytest.mark.parametrize("dtype", [ph.float16, ph.bfloat16], ids=lambda d: d.name)
def test_layers_in_half_precision(device: ph.Device, dtype: ph.DType) -> None:
    ph.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, device=device),
        nn.BatchNorm2d(4, device=device),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.LayerNorm(16, device=device),
        nn.RMSNorm(16, device=device),
        nn.Linear(16, 3, device=device),
    )
    half = copy.deepcopy(net).to(dtype)
    x, target = ph.tensor(array(8, 2, 4, 4), device=device), ph.tensor(np.arange(8) % 3, device=device)
    losses = []
    for model, data in ((net, x), (half, x.to(dtype))):
        loss = nn.functional.cross_entropy(model(data), target)
        assert loss.dtype is data.dtype
        loss.backward()
        assert all(p.grad is not None and p.grad.dtype is p.dtype is data.dtype for p in model.parameters())
        assert np.isfinite(model.eval()(data).to("float32").numpy()).all()
        losses.append(loss.to("float32").item())
    assert losses[0] == pytest.approx(losses[1], abs=0.05)


def test_losses_count_more_rows_than_float16_can(device: ph.Device) -> None:
    logits = ph.zeros((70_000, 2), ph.float16, device=device)
    target = ph.zeros((70_000,), "int32", device=device)
    assert nn.functional.cross_entropy(logits, target).item() == pytest.approx(np.log(2), abs=1e-3)
    log_p = logits - math.log(2)
    assert nn.functional.nll_loss(log_p, target).item() == pytest.approx(np.log(2), abs=1e-3)


def test_gpt_in_bfloat16(device: ph.Device) -> None:
    ph.manual_seed(0)
    model = GPT(GPTConfig(11, 8, 2, 2, 8), device=device)
    ids = ph.tensor([[1, 2, 3, 4]], device=device)
    expected = model(ids).numpy()
    model.to(ph.bfloat16)
    np.testing.assert_allclose(model(ids).to("float32").numpy(), expected, atol=0.05)
    assert len(generate(model, [1], 12, seed=0)) == 12
