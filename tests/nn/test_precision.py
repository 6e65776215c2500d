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


def test_a_bilinear_map_of_half_precision_sums_terms_that_half_precision_cannot_hold(device: ph.Device) -> None:
    x, y = np.array([[300.0, 1.0]]), np.array([[400.0, 400.0]])
    weight = np.array([[[1.0, 2.0**-8 - 1.0], [0.5, 0.25]]])
    half = [ph.tensor(a, dtype="float16", device=device, requires_grad=True) for a in (x, y, weight)]
    for function in (nn.functional.bilinear, ph.jit(nn.functional.bilinear)):
        out = function(*half)
        assert out.dtype is ph.float16
        kept = [a.detach().numpy().astype(np.float64) for a in half]
        expected = np.einsum("ni,kij,nj->nk", kept[0], kept[2], kept[1])
        assert 0 < np.abs(expected).max() < 2.0**12  # of the terms 120,200 and -119,431
        np.testing.assert_allclose(out.numpy().astype(np.float64), expected, rtol=2.0**-10)
    found = ph.autograd.grad(nn.functional.bilinear(*half).sum(), half)
    gradients = [
        np.einsum("kij,nj->ni", kept[2], kept[1]),
        np.einsum("ni,kij->nj", kept[0], kept[2]),
        np.einsum("ni,nj->ij", kept[0], kept[1])[None],
    ]
    for g, wanted in zip(found, gradients, strict=True):
        assert g.dtype is ph.float16
        limited = np.where(np.abs(wanted) < 65504, wanted, np.inf * np.sign(wanted))
        np.testing.assert_allclose(g.numpy().astype(np.float64), limited, rtol=2.0**-9, atol=0.5)
