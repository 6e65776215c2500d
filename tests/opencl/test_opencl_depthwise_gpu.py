"""GPU kernels of depthwise convolution, on any available device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_harness import as_gpu
from native_ops import check

from polyhal.hal import dtypes
from polyhal.hal.ops import OPS

pytestmark = pytest.mark.slow


@pytest.fixture
def gpu(device: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the device, treated as a GPU with four compute units."""
    runtime = device.backend.runtime
    most = min(runtime.features.max_group_size, 64)
    found = as_gpu(runtime.features, group_size=most, max_group_size=most, vector_width=4, compute_units=4)
    monkeypatch.setattr(runtime, "features", found)
    return device


# Kernel, stride, padding, dilation, filters per channel.
_CASES = [
    ((3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((3, 3), (2, 2), (1, 1), (1, 1), 1),
    ((5, 3), (1, 2), (2, 0), (1, 1), 2),
    ((3, 2), (3, 1), (0, 1), (1, 2), 1),
]


@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation", "filters"), _CASES, ids=str)
def test_depthwise_convolution_and_gradients(
    gpu: Any, rng: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, filters: int
) -> None:
    dtype = dtypes.bfloat16 if filters > 1 else dtypes.float32
    x, weight = rng.uniform(-1, 1, (3, 2, 11, 9)), rng.uniform(-1, 1, (2 * filters, 1, *kernel))
    params = {"stride": stride, "padding": padding, "dilation": dilation, "groups": 2}
    grad = rng.uniform(-1, 1, OPS["conv2d"].reference(x, weight, None, **params).shape)
    taps = float(np.prod(kernel))
    check(gpu, "conv2d", [x, weight, rng.uniform(-1, 1, 2 * filters)], dtype, magnitude=taps, **params)
    check(gpu, "conv2d", [x.swapaxes(2, 3).copy().swapaxes(2, 3), weight, None], dtype, magnitude=taps, **params)
    check(gpu, "conv2d_input_grad", [grad, weight], dtype, magnitude=filters * taps, shape=x.shape, **params)
    pixels = float(grad[:, 0].size)
    check(gpu, "conv2d_weight_grad", [grad, x], dtype, magnitude=pixels, kernel=kernel, **params)
