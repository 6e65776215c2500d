"""Running a layer here and in PyTorch on the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import polyhal as ph
from polyhal import nn

TOLERANCE = 1e-5


def close(found: Any, expected: Any, tolerance: float = TOLERANCE, name: str = "") -> None:
    """Compare relative to the largest magnitude, which bounds the rounding errors of float32 sums."""
    a = np.asarray(found, np.float64) if not isinstance(found, ph.Tensor) else found.numpy().astype(np.float64)
    b = (
        expected.detach().numpy().astype(np.float64)
        if isinstance(expected, torch.Tensor)
        else np.asarray(expected, np.float64)
    )
    assert a.shape == b.shape, f"{name}: shape {a.shape}, expected {b.shape}"
    np.testing.assert_allclose(
        a, b, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(b).max(initial=0))), err_msg=name
    )


def array(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed + 1).normal(size=shape) * scale).astype(np.float32)


def check_layer(
    ours: nn.Module,
    theirs: torch.nn.Module,
    *inputs: np.ndarray,
    device: ph.Device,
    call: Callable[[Any, tuple[Any, ...]], Any] = lambda layer, xs: layer(*xs),
    tolerance: float = TOLERANCE,
) -> None:
    """Same state by name, then the same output, input gradients and parameter gradients."""
    state = theirs.state_dict()
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict(state)
    mine = tuple(ph.tensor(x, device=device, requires_grad=x.dtype.kind == "f") for x in inputs)
    other = tuple(torch.tensor(x, requires_grad=x.dtype.kind == "f") for x in inputs)
    out, expected = call(ours, mine), call(theirs, other)
    close(out, expected, tolerance, "output")
    seed = array(*expected.shape, seed=99)
    out.backward(ph.tensor(seed, device=device))
    expected.backward(torch.tensor(seed))
    for i, (a, b) in enumerate(zip(mine, other, strict=True)):
        if b.grad is not None:
            close(a.grad, b.grad, tolerance, f"gradient of input {i}")
    for (name, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        close(p.grad, q.grad, tolerance, f"gradient of {name}")
    for name, value in theirs.state_dict().items():  # running statistics
        close(ours.state_dict()[name], value, tolerance, name)
