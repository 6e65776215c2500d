"""Mixed precision: dtypes under autocast, their gradients, and loss scaling step by step as on the CPU."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import polyhal.torch
from polyhal.torch import autocast
from polyhal.torch.kernels import overload


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_dtypes(torch_device: str, dtype: torch.dtype) -> None:
    x = torch.rand(3, 3, device=torch_device)
    half, double = x.to(dtype), x.double()
    target = torch.tensor([0, 1, 2], device=torch_device)
    with torch.autocast(torch_device, dtype=dtype):
        assert {(x @ x).dtype, F.linear(x, x).dtype, (half @ x).dtype, torch.einsum("ij,jk", x, x).dtype} == {dtype}
        assert {half.exp().dtype, F.layer_norm(half, (3,)).dtype, (half**2).dtype, half.norm().dtype} == {torch.float32}
        assert {half.softmax(0).dtype, half.sum().dtype, half.cumsum(0).dtype} == {torch.float32}
        assert half.sum(dtype=dtype).dtype is dtype
        assert F.cross_entropy(half, target).dtype is torch.float32
        assert (half + x).dtype is torch.float32
        assert {half.relu().dtype, (half + half).dtype, torch.addcmul(half, half, half).dtype} == {dtype}
        assert torch.addcmul(half, x, half).dtype is torch.float32
        assert (double @ double).dtype is torch.float64
        with torch.autocast(torch_device, enabled=False):
            assert (x @ x).dtype is torch.float32
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(x, x)
    assert (x @ x).dtype is torch.float32


def test_a_step_is_that_of_casts_by_hand(torch_device: str) -> None:
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)).to(torch_device)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)).to(torch_device)
    with torch.autocast(torch_device, dtype=torch.bfloat16):
        loss = F.mse_loss(model(x), torch.zeros(4, 1, device=torch_device))
    loss.backward()
    by_hand = copy.deepcopy(model)
    by_hand.zero_grad()
    first, _, second = by_hand
    hidden = F.linear(x.bfloat16(), first.weight.bfloat16(), first.bias.bfloat16()).relu()
    y = F.linear(hidden, second.weight.bfloat16(), second.bias.bfloat16()).float()
    F.mse_loss(y, torch.zeros_like(y)).backward()
    for a, b in zip(model.parameters(), by_hand.parameters(), strict=True):
        assert a.grad is not None
        assert a.grad.dtype is torch.float32
        assert torch.equal(a.grad, b.grad)


def test_loss_scaling_is_that_of_the_cpu(torch_device: str) -> None:
    """An overflow halves the scale and skips the step; two good steps double it."""
    runs = []
    for device in ("cpu", torch_device):
        weight = nn.Parameter(torch.ones(3, device=device))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        scaler = torch.amp.GradScaler(device, init_scale=8.0, growth_interval=2)
        history = []
        for factor in (1.0, 1.0, float("inf"), 2.0, float("nan"), 1.0, 1.0, 1.0):
            optimizer.zero_grad()
            scaler.scale((weight * factor).sum()).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            history.append((scaler.get_scale(), scaler._get_growth_tracker(), *weight.tolist()))
        runs.append(history)
    assert runs[0] == runs[1]
    assert not polyhal.torch.report().on_cpu


def test_a_scaler_of_a_device_that_is_absent_is_disabled(torch_device: str) -> None:
    weight = nn.Parameter(torch.ones(3, device=torch_device))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    with pytest.warns(UserWarning, match="CUDA is not available"):
        scaler = torch.amp.GradScaler("cuda")
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0.5, 0.5, 0.5]


def test_every_op_of_the_lists_is_one_of_pytorchs() -> None:
    names = " ".join((autocast.HALF, autocast.FULL, autocast.FULL_DTYPE, autocast.WIDEST, autocast.REFUSED)).split()
    assert len(names) == len(set(names))
    assert [n for n in names if overload(n if "." in n else f"{n}.default") is None] == []
