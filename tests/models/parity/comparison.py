"""Outputs and gradients of a model beside those of a PyTorch model with the same weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

import polyhal
from polyhal.nn import Module


class Agreement(NamedTuple):
    """The largest relative errors: of the outputs, and of the gradient of any parameter."""

    outputs: float
    gradients: float
    worst: str
    """The parameter with the largest error."""


def relative_error(actual: Any, expected: Any) -> float:
    """The norm of the difference by the norm of what is expected, both arrays, in float64."""
    a, b = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert a.shape == b.shape, (a.shape, b.shape)
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30))


def with_weights_of(ours: Module, theirs: torch.nn.Module) -> None:
    """Load PyTorch's weights and buffers, by name, strictly."""
    ours.load_state_dict({key: value.detach().numpy() for key, value in theirs.state_dict().items()})


def compare(
    ours: Module, theirs: torch.nn.Module, inputs: Sequence[np.ndarray], device: polyhal.Device, call: str = "__call__"
) -> Agreement:
    """Give `ours` the weights of `theirs`, run both, and compare results and gradients of a weighted sum of the results.

    The error of a gradient is relative to its norm, or to that of a gradient 10,000 times smaller than the model's largest:
    a gradient that is zero but for rounding, such as that of a bias before a norm, has no relative error.
    """
    with_weights_of(ours, theirs)
    y = getattr(ours, call)(*(polyhal.tensor(x, device=device) for x in inputs))
    z = getattr(theirs, call)(*map(torch.tensor, inputs))
    y, z = (y, z) if isinstance(y, tuple) else ((y,), (z,))
    pull = [np.random.default_rng(1).standard_normal(part.shape).astype(np.float32) for part in z]
    polyhal.stack(
        [(a * polyhal.tensor(p, device=device)).mean() for a, p in zip(y, pull, strict=True)]
    ).sum().backward()
    torch.stack([(b * torch.tensor(p)).mean() for b, p in zip(z, pull, strict=True)]).sum().backward()
    outputs = max(relative_error(a.numpy(), b.detach().numpy()) for a, b in zip(y, z, strict=True))
    errors = gradient_errors(ours, theirs)
    worst = max(errors, key=lambda name: errors[name])
    return Agreement(outputs, errors[worst], worst)


def gradient_errors(ours: Module, theirs: torch.nn.Module) -> dict[str, float]:
    """The relative error of each parameter's gradient. Parameters without a gradient must have none on both sides."""
    expected = {name: p.grad for name, p in theirs.named_parameters()}
    scale = max(float(g.norm() / g.numel() ** 0.5) for g in expected.values() if g is not None)
    errors = {}
    for name, p in ours.named_parameters():
        want = expected[name]
        assert (p.grad is None) == (want is None), name
        if p.grad is not None and want is not None:
            norm = max(float(want.norm()), 1e-4 * scale * want.numel() ** 0.5)
            errors[name] = float(np.linalg.norm(p.grad.numpy() - want.numpy())) / norm
    return errors


Case = Callable[[polyhal.Device], tuple[Module, torch.nn.Module, list[np.ndarray]]]
"""Makes a model on a device, its counterpart in PyTorch, and arguments for both."""
