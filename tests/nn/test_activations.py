"""Activations in PyTorch's spelling: those that overwrite their input, and slopes drawn in training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal.hal.errors import AutogradError
from polyhal.nn import functional as F

from .compare import close

VALUES = np.linspace(-4, 4, 17, dtype=np.float32)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("relu_", ()),
        ("leaky_relu_", (0.2,)),
        ("rrelu_", ()),
        ("elu_", (0.5,)),
        ("celu_", (0.5,)),
        ("selu_", ()),
        ("hardtanh_", (-0.5, 2.0)),
        ("threshold_", (0.5, -2.0)),
    ],
)
def test_an_underscore_overwrites_the_input(name: str, args: tuple[Any, ...]) -> None:
    x = ph.tensor(VALUES, device="numpy")
    assert getattr(F, name)(x, *args) is x
    close(x, getattr(torch.nn.functional, name)(torch.tensor(VALUES), *args))


def test_an_input_with_gradients_is_not_overwritten() -> None:
    x = ph.tensor(VALUES, device="numpy", requires_grad=True)
    with pytest.raises(AutogradError, match="in place"):
        F.relu_(x)


def test_rrelu_draws_slopes_within_its_bounds_in_training() -> None:
    x = ph.full((1000,), -1.0, device="numpy", requires_grad=True)
    y = F.rrelu(x, 0.25, 0.5, training=True)
    y.sum().backward()
    slopes = -y.detach().numpy()
    assert slopes.min() >= 0.25
    assert slopes.max() < 0.5
    assert slopes.std() > 0.05
    assert x.grad is not None
    close(x.grad, torch.tensor(slopes))
