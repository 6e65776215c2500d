"""The weight gradient of convolution on CPUs as a product of gradients in place and packed pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_ops import check

from polyhal.backends.common.problems.conv import Convolution, describe
from polyhal.backends.opencl_c.lowering.conv import cpu_weight_grad, cpu_weight_grad_columns
from polyhal.hal import dtypes
from polyhal.hal.layout import contiguous
from polyhal.hal.ops.nn.window_shape import output_length

# Rows of convolution windows in one block and in several, with a partial last one; filters in several tiles; results in
# several passes, which begin within a row; a stride beyond the padding; images that windows do not cover; one row.
CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 30, 15, 17), (13, 30, 3, 3), {"padding": (1, 1)}),
    ((3, 4, 20, 21), (8, 2, 4, 4), {"stride": (2, 2), "padding": (1, 1), "groups": 2}),
    ((2, 3, 9, 30), (5, 3, 2, 7), {"stride": (1, 3), "padding": (2, 6), "dilation": (3, 1)}),
    ((1, 2, 4, 6), (3, 2, 3, 8), {"padding": (4, 5)}),
    ((9, 6, 1, 150), (40, 6, 1, 5), {"padding": (0, 2)}),
    ((4, 1, 6, 5), (2, 1, 2, 2), {"stride": (2, 2)}),
]


@pytest.mark.parametrize(("x", "weight", "more"), CASES)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
def test_weight_gradient(
    device: Any,
    rng: Any,
    monkeypatch: pytest.MonkeyPatch,
    x: tuple[int, ...],
    weight: tuple[int, ...],
    more: dict[str, Any],
    dtype: dtypes.DType,
) -> None:
    if not device.backend.features.cpu or dtype not in device.backend.capabilities.storage:
        pytest.skip("not for this device")
    if dtype is dtypes.float64 and device.backend.features.vector_width < 8:
        pytest.skip("a tile is narrower than some windows")
    launched = []
    launch = cpu_weight_grad_columns.launch
    monkeypatch.setattr(cpu_weight_grad_columns, "time", lambda *_: 0.0)
    monkeypatch.setattr(cpu_weight_grad_columns, "launch", lambda *args: launched.append(1) or launch(*args))
    params = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1, **more}
    axes = zip(x[2:], weight[2:], params["stride"], params["padding"], params["dilation"], strict=True)
    grad = rng.uniform(-1, 1, (x[0], weight[0], *(output_length(*a) for a in axes)))
    image = rng.uniform(-1, 1, (*x[:3], x[3] + 3))[..., : x[3]]
    for view in (np.ascontiguousarray(image), image):  # contiguous, and with gaps between rows
        check(device, "conv2d_weight_grad", [grad, view], dtype, ulps=32, kernel=weight[2:], **params)
    assert len(launched) == 2


def test_many_filters_are_multiplied_as_columns(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with few filters, where packing dominates, gradients with gaps between rows, or windows of one column."""
    runtime = device.backend.runtime
    if not runtime.features.cpu:
        pytest.skip("not for this device")
    launched = []
    launch = cpu_weight_grad_columns.launch
    monkeypatch.setattr(cpu_weight_grad_columns, "launch", lambda *args: launched.append(1) or launch(*args))
    params = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    for filters, kernel, expected in ((512, 3, True), (4, 3, False), (512, 1, False)):
        pixels = 7 + 2 - kernel + 1
        grad = contiguous(dtypes.float32, (4, filters, pixels, pixels))
        image, weight = (
            contiguous(dtypes.float32, (4, 64, 7, 7)),
            contiguous(dtypes.float32, (filters, 64, kernel, kernel)),
        )
        for view, also in ((grad, True), (grad._replace(strides=(*grad.strides[:2], 2 * pixels, 1)), False)):
            launched.clear()
            problem = describe("conv2d_weight_grad", (view, image), (weight,), params)
            assert isinstance(problem, Convolution)
            cpu_weight_grad.weight_grad(runtime, problem)
            assert bool(launched) == (expected and also)
