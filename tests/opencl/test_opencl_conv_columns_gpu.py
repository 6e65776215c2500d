"""Input gradients of convolutions with few channels by columns, which GPUs compute in 16 bits, on any device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_harness import as_gpu
from native_ops import upload

from polyhal.backends.common.problems import conv
from polyhal.backends.opencl_c.lowering.conv import columns
from polyhal.hal import dtypes
from polyhal.hal.ops import OPS
from polyhal.hal.protocol import Declined

PARAMS = {"stride": (2, 1), "padding": (3, 1), "dilation": (1, 2), "groups": 1}


@pytest.mark.parametrize("last", [True, False], ids=["channels last", "channels first"])
def test_images_take_turns(device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, last: bool) -> None:
    runtime = device.backend.runtime
    monkeypatch.setattr(runtime, "features", as_gpu(runtime.features))
    half, x = dtypes.float16.numpy, (5, 3, 12, 10)
    slope = rng.uniform(-1, 1, (5, 24, 7, 8)).astype(half)
    kernel = rng.uniform(-1, 1, (24, 3, 5, 3)).astype(half)
    if last:
        slope, kernel = (np.ascontiguousarray(a.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) for a in (slope, kernel))
    g, w, out = upload(device, slope), upload(device, kernel), device.empty(dtypes.float16, x)
    c = conv.describe("conv2d_input_grad", (g.spec, w.spec), (out.spec,), PARAMS)
    assert not isinstance(c, Declined)
    launch = columns.build(runtime, c, 2)
    assert launch is not None
    launch(g, w, out, *(device.backend.allocate(n) for n in launch.workspace))
    want = OPS["conv2d_input_grad"].reference(slope.astype(np.float64), kernel.astype(np.float64), shape=x, **PARAMS)
    np.testing.assert_allclose(device.download(out), want, rtol=2**-10, atol=2**-10 * np.abs(want).max() / 8)
