"""Winograd convolution of GPUs, on any device: borders, parts of tiles, bias, flipped windows, infinities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conv_infinities import check_infinities
from native_harness import as_gpu
from native_ops import check

from polyhal.backends.opencl_c.lowering.conv import (
    local_images,
    winograd,
    winograd_fused,
    winograd_tile,
    winograd_weight_grad,
)
from polyhal.backends.opencl_c.lowering.conv.winograd_tile import WinogradTile
from polyhal.hal import dtypes

DEFAULTS = {"stride": (1, 1), "dilation": (1, 1), "groups": 1}


@pytest.mark.parametrize(("padding", "fused"), [((1, 1), False), ((0, 2), True)], ids=str)
def test_winograd(
    device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, padding: tuple[int, int], fused: bool
) -> None:
    runtime = device.backend.runtime
    monkeypatch.setattr(runtime, "features", as_gpu(runtime.features))
    for module in (winograd, winograd_fused, winograd_tile, winograd_weight_grad):
        monkeypatch.setattr(module, "TILE", WinogradTile(2, 2, 4))
    monkeypatch.setattr(winograd_fused, "_MAX_FILTERS", 128 if fused else 0)
    monkeypatch.setattr(winograd_fused, "_MIN_FILL", 0)
    monkeypatch.setattr(local_images, "_MULTIPLY_ADDS", 0)
    monkeypatch.setattr(winograd, "_MIN_CHANNELS", 1)
    monkeypatch.setattr(winograd, "_MIN_TILES", 1)
    monkeypatch.setattr(winograd_weight_grad, "_MIN_GAIN", 0)
    monkeypatch.setattr(winograd_weight_grad, "_MIN_WORK", 0)
    launched: list[str] = []
    launch = runtime.launch
    monkeypatch.setattr(runtime, "launch", lambda name, *a, **k: (launched.append(name), launch(name, *a, **k))[1])
    params, x, weight = {**DEFAULTS, "padding": padding}, (3, 20, 7, 10), (18, 20, 3, 3)
    result = (3, 18, 5 + 2 * padding[0], 8 + 2 * padding[1])
    image, kernel, slope = rng.uniform(-1, 1, x), rng.uniform(-1, 1, weight), rng.uniform(-1, 1, result)
    # A result is the sum of nine products of sums of four pixels.
    check(device, "conv2d", [image, kernel, rng.uniform(-1, 1, 18)], ulps=64, **params)
    check(device, "conv2d_input_grad", [slope, kernel[:, :, ::-1]], ulps=64, shape=x, **params)
    check_infinities(device, rng, x, weight, params, dtypes.float32.numpy)
    check(device, "conv2d_weight_grad", [slope, image], ulps=64, kernel=(3, 3), **params)
    image[0, 3, 0, 0] = np.inf  # no window has the first pixel under its last tap
    check(device, "conv2d_weight_grad", [slope, image], ulps=64, kernel=(3, 3), **params)
    assert {name for name in launched if name.startswith("conv/")} == {
        "conv/winograd_fused" if fused else "conv/winograd",
        "conv/winograd_weight_grad",
    }
