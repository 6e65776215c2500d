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
