"""Convolutions of small images from local memory, on any device: strides, dilation, borders, parts of filters, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conv_infinities import check_infinities
from native_harness import as_gpu
from native_ops import check

from polyhal.hal import dtypes
from polyhal.hal.ops.nn.window_shape import output_length

DEFAULTS = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
# Eight filters per work-item, filters in parts of four, and geometries whose gradients other kernels compute.
CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], bool]] = [
    ((40, 5, 8, 8), (32, 5, 3, 3), {}, True),
    ((2, 7, 9, 11), (18, 7, 3, 2), {"padding": (0, 1), "dilation": (2, 1)}, True),
    ((3, 3, 17, 19), (9, 3, 5, 3), {"stride": (2, 3), "padding": (2, 1)}, False),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_against_the_reference(device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, case: int) -> None:
    runtime = device.backend.runtime
    monkeypatch.setattr(runtime, "features", as_gpu(runtime.features, compute_units=20))
    launched: list[str] = []
    launch = runtime.launch
    monkeypatch.setattr(runtime, "launch", lambda name, *a, **k: (launched.append(name), launch(name, *a, **k))[1])
    x, weight, more, transposed = CASES[case]
    params = DEFAULTS | more
    axes = zip(x[2:], weight[2:], params["stride"], params["padding"], params["dilation"], strict=True)
    result = (x[0], weight[0], *(output_length(*a) for a in axes))
    image, kernel, slope = rng.uniform(-1, 1, x), rng.uniform(-1, 1, weight), rng.uniform(-1, 1, result)
    image = np.ascontiguousarray(image.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    dtype = dtypes.float16 if case == 1 else dtypes.float32
    check(device, "conv2d", [image, kernel, rng.uniform(-1, 1, weight[0]) if case else None], dtype, ulps=16, **params)
    if transposed:
        check(device, "conv2d_input_grad", [slope, kernel], dtype, ulps=16, shape=x, **params)
        check_infinities(device, rng, x, weight, params, dtype.numpy)

    # Results are filled before they are computed.
    assert set(launched) - {"pointwise/elementwise"} == {"conv/local_images"}
