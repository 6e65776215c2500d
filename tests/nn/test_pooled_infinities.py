"""Max pooling of infinities and NaN: indices are in bounds and name the first maxima or the last NaN, as in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from devices import PARITY_DEVICES
from torch.nn import functional as torch_functional

import polyhal
from polyhal.hal.device import Device
from polyhal.nn import functional as F

_WINDOWS: dict[str, tuple[int, tuple[int, ...], dict[str, Any]]] = {
    "1d": (1, (7,), {"kernel_size": 3, "stride": 2, "padding": 1}),
    "2d": (2, (4, 5), {"kernel_size": 3, "stride": 2, "padding": 1}),
    "2d wide": (2, (5, 70), {"kernel_size": 3, "stride": 1, "padding": 1}),
    "2d dilated": (2, (7, 8), {"kernel_size": (2, 3), "stride": (1, 2), "padding": (1, 1), "dilation": 2}),
    "2d ceil": (2, (5, 6), {"kernel_size": 2, "stride": 2, "padding": 1, "ceil_mode": True}),
    "3d": (3, (3, 4, 4), {"kernel_size": 3, "stride": 2, "padding": 1}),
}


@pytest.fixture(params=PARITY_DEVICES)
def device(request: pytest.FixtureRequest) -> Device:
    return Device(request.param)


def _values(shape: tuple[int, ...], kind: str) -> np.ndarray:
    x = np.full((2, 3, *shape), -np.inf, np.float32)
    if kind != "infinities":
        chosen = np.random.default_rng(3).permutation(x.size)[: x.size // 6]
        fillings = {"numbers": np.arange(len(chosen)), "lowest": np.finfo(np.float32).min, "nan": np.nan}
        x.reshape(-1)[chosen] = fillings[kind]
    return x


@pytest.mark.parametrize("kind", ["infinities", "numbers", "lowest", "nan"])
@pytest.mark.parametrize("name", _WINDOWS)
def test_max_pooling_never_takes_the_padding(device: Device, name: str, kind: str) -> None:
    axes, shape, window = _WINDOWS[name]
    values = _values(shape, kind)
    x = polyhal.tensor(values, device=device, requires_grad=True)
    y, indices = getattr(F, f"max_pool{axes}d")(x, return_indices=True, **window)
    theirs = torch.tensor(values, requires_grad=True)
    out, places = getattr(torch_functional, f"max_pool{axes}d")(theirs, return_indices=True, **window)
    g = np.random.default_rng(4).normal(size=y.shape).astype(np.float32)
    y.backward(polyhal.tensor(g, device=device))
    out.backward(torch.tensor(g))
    np.testing.assert_array_equal(y.numpy(), out.detach().numpy())
    np.testing.assert_array_equal(indices.numpy(), places.numpy())
    np.testing.assert_allclose(x.grad.numpy(), theirs.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_a_nan_in_a_window_at_the_border_is_its_maximum(device: Device) -> None:
    x = polyhal.tensor(np.full((1, 1, 2, 2), np.nan, np.float32), device=device, requires_grad=True)
    theirs = torch.full((1, 1, 2, 2), float("nan"), requires_grad=True)
    y, indices = F.max_pool2d(x, 3, 2, 1, return_indices=True)
    out, places = torch_functional.max_pool2d(theirs, 3, 2, 1, return_indices=True)
    y.backward(polyhal.ones_like(y))
    out.backward(torch.ones_like(out))
    assert np.isnan(y.item())
    assert indices.item() == places.item()
    np.testing.assert_array_equal(x.grad.numpy(), theirs.grad.numpy())


def test_maxima_of_infinities_are_put_back(device: Device) -> None:
    x = polyhal.tensor(np.full((1, 1, 2, 2), -np.inf, np.float32), device=device)
    back = F.max_unpool2d(*F.max_pool2d(x, 3, 2, 1, return_indices=True), 3, 2, 1, output_size=(2, 2))
    assert back.numpy().ravel().tolist() == [-np.inf, 0.0, 0.0, 0.0]


_POSITIONS: dict[str, Any] = {
    "argmax": lambda m, x: m.argmax(x, 1),
    "argmin": lambda m, x: m.argmin(x, 1),
    "max": lambda m, x: m.max(x, 1)[1] if m is torch else m.argmax(x, 1),
    "cummax": lambda m, x: m.cummax(x, 1)[0],
    "cummin": lambda m, x: m.cummin(x, 1)[0],
    "topk": lambda m, x: m.topk(x, 3, 1)[0],
    "sort": lambda m, x: m.sort(x, 1)[0] if m is torch else m.sort(x, 1),
    "median": lambda m, x: m.median(x, 1)[0],
    "kthvalue": lambda m, x: m.kthvalue(x, 2, 1)[0],
    "adaptive": lambda m, x: (torch_functional if m is torch else F).adaptive_max_pool1d(x, 3, return_indices=True)[1],
}


@pytest.mark.parametrize("name", _POSITIONS)
def test_order_and_positions_among_infinities_equal_pytorchs(device: Device, name: str) -> None:
    values = np.full((3, 7), -np.inf, np.float32)
    values[1, 2:4] = np.inf
    values[2, 4:] = [np.nan, 1.0, np.inf]
    ours = _POSITIONS[name](polyhal, polyhal.tensor(values, device=device))
    ours = ours[0] if isinstance(ours, tuple) else ours
    np.testing.assert_array_equal(ours.numpy(), _POSITIONS[name](torch, torch.tensor(values)).numpy())
