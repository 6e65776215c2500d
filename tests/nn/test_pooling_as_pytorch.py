"""Pooling and windows of drawn shapes, with gradients and second gradients, equal PyTorch's in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from devices import PARITY_DEVICES
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as torch_functional

import polyhal
from polyhal.hal.device import Device
from polyhal.nn import functional as F

_LONGEST = {1: 30, 2: 10, 3: 6}

_ON_DEVICES = pytest.mark.parametrize("device", [Device(name) for name in PARITY_DEVICES], ids=str)


@st.composite
def _poolings(draw: st.DrawFn) -> tuple[str, tuple[int, ...], dict[str, Any]]:
    """Draw a function of windows, a shape that it accepts, and its arguments."""
    axes = draw(st.sampled_from((1, 2, 2, 3)))
    family = draw(st.sampled_from(("max_pool", "avg_pool", "lp_pool", "adaptive_max_pool", "adaptive_avg_pool")))
    batch = (draw(st.integers(1, 2)), draw(st.integers(1, 3)))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(axes))

    if family.startswith("adaptive"):
        return f"{family}{axes}d", (*batch, *each(1, _LONGEST[axes])), {"output_size": each(1, 5)}
    kernel, dilation = each(1, 4), each(1, 3) if family == "max_pool" else (1,) * axes
    arguments: dict[str, Any] = {"kernel_size": kernel, "stride": each(1, 4), "ceil_mode": draw(st.booleans())}
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    if family == "max_pool":
        arguments["dilation"] = dilation
    if family == "lp_pool":
        if axes == 1:  # PyTorch takes numbers only
            arguments |= {"kernel_size": kernel[0], "stride": arguments["stride"][0]}
        arguments["norm_type"] = draw(st.sampled_from((1, 2.0, 1.5, float("inf"), -float("inf"))))
    else:
        arguments["padding"] = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    if family == "avg_pool":
        arguments["count_include_pad"] = draw(st.booleans())
    lengths = tuple(span + draw(st.integers(0, _LONGEST[axes] // 2)) for span in spans)
    return f"{family}{axes}d", (*batch, *lengths), arguments


def _values(shape: tuple[int, ...], name: str, seed: int) -> np.ndarray:
    """Few distinct integers, so that windows have ties; for norms no negative ones, whose roots are NaN."""
    low = 0 if name.startswith("lp") else -2
    return np.random.default_rng(seed).integers(low, 3, shape).astype(np.float32)


def _derivatives(library: Any, function: Any, x: Any, g: Any, v: Any) -> list[Any]:
    """Return a result, its pullback of `g`, and that pullback's own pullback of `v` to `g`."""
    y = function(x)
    (dx,) = library.autograd.grad(y, x, g, create_graph=True)
    (dg,) = library.autograd.grad(dx, g, v)
    return [y, dx, dg]


@_ON_DEVICES
@settings(max_examples=8, deadline=None, derandomize=True)
@given(pooling=_poolings(), seed=st.integers(0, 1000))
def test_pooling_and_its_derivatives_equal_pytorchs(
    device: Device, pooling: tuple[str, tuple[int, ...], dict[str, Any]], seed: int
) -> None:
    name, shape, arguments = pooling
    x = _values(shape, name, seed)
    theirs = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    expected = getattr(torch_functional, name)(theirs, **arguments)
    rng = np.random.default_rng(seed)
    g, v = (rng.normal(size=tuple(s)).astype(np.float32) for s in (expected.shape, shape))
    wanted = _derivatives(
        torch,
        lambda t: getattr(torch_functional, name)(t, **arguments),
        theirs,
        torch.tensor(g, dtype=torch.float64, requires_grad=True),
        torch.tensor(v, dtype=torch.float64),
    )
    found = _derivatives(
        polyhal,
        lambda t: getattr(F, name)(t, **arguments),
        polyhal.tensor(x, device=device, requires_grad=True),
        polyhal.tensor(g, device=device, requires_grad=True),
        polyhal.tensor(v, device=device),
    )
    for ours, right in zip(found, wanted, strict=True):
        right = right.detach().numpy()
        # Sums of at most 64 float32 terms and a root: 64 roundings of the largest.
        scale = max(1.0, float(np.abs(right).max()))
        np.testing.assert_allclose(ours.detach().numpy(), right, rtol=0, atol=64 * 2.0**-23 * scale)


@_ON_DEVICES
@pytest.mark.parametrize("power", [1.5, 2.0, 3.0])
def test_the_gradient_of_a_norm_of_zeros_is_zero(device: Device, power: float) -> None:
    x = polyhal.tensor([[[0.0, 0.0, 1.0, 2.0]]], device=device, requires_grad=True)
    F.lp_pool1d(x, power, 2).sum().backward()
    theirs = torch.tensor([[[0.0, 0.0, 1.0, 2.0]]], requires_grad=True)
    torch_functional.lp_pool1d(theirs, power, 2).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), theirs.grad.numpy(), rtol=1e-6)
