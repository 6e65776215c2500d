"""Recorded steps of batch norm take the variance of the forward pass for the gradient, which is then fused with relu's."""

from __future__ import annotations

import torch
from torch import nn

import polyhal
import polyhal.torch


def _train(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    return loss.detach()


def test_gradients_of_batch_norm_and_relu(torch_device: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 2, 1)).double()
    x = torch.randn(4, 3, 6, 6).double()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    expected = _train(model, x)
    recorded = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 2, 1))
    recorded.load_state_dict({name: value.to(torch.get_default_dtype()) for name, value in state.items()})
    recorded = recorded.to(torch_device)
    batch = x.float().to(torch_device)
    step = polyhal.torch.jit(lambda: _train(recorded, batch), strict=True)
    for _ in range(4):
        found = step()
    # Sums of at most 144 products of numbers of about 1, each rounded by at most 6e-8.
    torch.testing.assert_close(found.cpu(), expected.float(), rtol=1e-5, atol=0)
    for ours, theirs in zip(recorded.parameters(), model.parameters(), strict=True):
        assert ours.grad is not None
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad.float(), rtol=1e-4, atol=1e-6)
    if not polyhal.get_default_device().capabilities.reference:
        assert "batch_norm_relu_grad" in str(step.explain())
