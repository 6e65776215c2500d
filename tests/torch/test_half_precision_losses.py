"""Means over more elements than float16 can count, in PyTorch programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

_COUNT = 70_000
_SCALE = 1024.0
"""A loss scale, so that shares of 1 / 70,000 are normal numbers of float16."""


def _classes(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros(len(x), dtype=torch.long, device=x.device)


_MEANS: dict[str, Callable[[torch.Tensor], Any]] = {
    "mean": torch.mean,
    "amax": torch.amax,
    "poisson_nll_loss": lambda x: F.poisson_nll_loss(x, torch.ones_like(x)),
    "nll_loss": lambda x: F.nll_loss(x[:, None], _classes(x)),
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x[None], 1),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", _MEANS)
def test_the_gradient_of_a_mean_over_more_elements_than_float16_counts(
    torch_device: str, name: str, compiled: bool
) -> None:
    def gradient(x: torch.Tensor, function: Callable[[torch.Tensor], Any]) -> torch.Tensor:
        x.requires_grad_()
        (function(x) * _SCALE).sum().backward()
        assert x.grad is not None
        return x.grad.cpu().double()

    torch._dynamo.reset()
    expected = gradient(torch.full((_COUNT,), 0.5, dtype=torch.float64), _MEANS[name])
    function = torch.compile(_MEANS[name], backend="polyhal") if compiled else _MEANS[name]
    got = gradient(torch.full((_COUNT,), 0.5, dtype=torch.half, device=torch_device), function)
    torch.testing.assert_close(got, expected, rtol=2.0**-9, atol=0)


def _halves(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, 64)


_ROUNDED_ONCE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "smooth_l1_loss": lambda x, y: F.smooth_l1_loss(x, y, reduction="none", beta=0.3),
    "huber_loss": lambda x, y: F.huber_loss(x, y, reduction="none", delta=0.3),
    "mse_loss": lambda x, y: F.mse_loss(x, y, reduction="none"),
    "softplus": lambda x, y: F.softplus(x, beta=0.7),
    "mish": lambda x, y: F.mish(x),
    "elu": lambda x, y: F.elu(x, 0.7),
    "celu": lambda x, y: F.celu(x, 0.7),
    "selu": lambda x, y: F.selu(x),
    "hardswish": lambda x, y: F.hardswish(x),
    "logsigmoid": lambda x, y: F.logsigmoid(x),
    "glu": lambda x, y: F.glu(_halves(x)),
    "rms_norm": lambda x, y: F.rms_norm(_halves(x), (64,)),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", _ROUNDED_ONCE)
def test_losses_and_activations_of_half_precision_round_once(torch_device: str, name: str, dtype: torch.dtype) -> None:
    """One rounding is off by at most half a unit in the last place. Float32 adds below 1 % to it, 1e-6 where terms cancel."""
    generator = torch.Generator().manual_seed(3)
    x, y, weights = (torch.randn(1024, generator=generator).to(dtype) for _ in range(3))

    def run(device: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        leaf = x.to(device, dtype, copy=True).requires_grad_()
        out = _ROUNDED_ONCE[name](leaf, y.to(device, dtype))
        out.backward(weights[: out.numel()].reshape(out.shape).to(device, dtype))
        assert leaf.grad is not None
        return out.detach().cpu().double(), leaf.grad.cpu().double()

    half, least = 0.505 * torch.finfo(dtype).eps, torch.finfo(dtype).smallest_normal
    for found, expected in zip(run(torch_device, dtype), run("cpu", torch.float64), strict=True):
        scale = 2.0 ** expected.abs().clamp_min(least).log2().floor()
        assert bool(((found - expected).abs() <= half * scale + 1e-6).all())
