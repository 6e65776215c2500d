"""GELU written in PyTorch's plain ops, as models of transformers do, is recorded as the op, with its gradient."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import polyhal
import polyhal.torch


class _NewGELU(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cubic = x + 0.044715 * torch.pow(x, 3.0)
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * cubic))


@pytest.mark.parametrize("half", [False, True], ids=["float32", "autocast"])
def test_gelu_and_its_gradient(torch_device: str, half: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(16, 8)
    model = nn.Sequential(nn.Linear(8, 24), _NewGELU(), nn.Linear(24, 4))
    exact = nn.Sequential(nn.Linear(8, 24), nn.GELU(approximate="tanh"), nn.Linear(24, 4)).double()
    exact.load_state_dict(model.state_dict())
    loss = exact(x.double()).square().mean()
    loss.backward()
    model, batch = model.to(torch_device), x.to(torch_device)

    def train() -> torch.Tensor:
        model.zero_grad()
        with torch.autocast(torch_device, torch.bfloat16, enabled=half):
            found = model(batch).float().square().mean()
        found.backward()
        return found.detach()

    step = polyhal.torch.jit(train, strict=True)
    for _ in range(4):
        found = step()
    # A gradient passes through three products whose operands are rounded to 8 bits, or 24.
    error = 4 * 2.0**-8 if half else 1e-5
    assert found.item() == pytest.approx(loss.item(), rel=error)
    for ours, theirs in zip(model.parameters(), exact.parameters(), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert (ours.grad.cpu() - theirs.grad).norm() <= error * theirs.grad.norm()
    if not polyhal.get_default_device().capabilities.reference:
        assert "gelu_grad" in str(step.explain())
