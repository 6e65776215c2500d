"""Convolutions of large batches in chunks of images, with reduced limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_harness import as_gpu
from native_ops import check

import polyhal as ph
from polyhal.backends.common.problems import conv, conv_pieces
from polyhal.hal import dtypes
from polyhal.hal.layout import contiguous
from polyhal.hal.ops import OPS
from polyhal.hal.protocol import Declined
from polyhal.nn import functional as F

PARAMS = {"stride": (2, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 2}
X, WEIGHT = (7, 6, 9, 8), (4, 3, 3, 3)
RESULT = (7, 4, 5, 8)


@pytest.fixture(params=["too many elements", "too much workspace"])
def limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limit of elements to three images, or the limit of workspace to 0."""
    monkeypatch.setattr(conv_pieces, "_LARGE", 1)
    if request.param == "too many elements":
        monkeypatch.setattr(conv, "MAX_ELEMENTS", 3 * 6 * 9 * 8)
    else:
        monkeypatch.setattr(conv_pieces, "MAX_WORKSPACE", 0)


@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("gpu", [False, True], ids=["processor", "gpu"])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16], ids=lambda d: d.name)
def test_convolution_in_chunks_equals_the_whole(
    device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, dtype: dtypes.DType, gpu: bool
) -> None:
    """Sums over chunks are rounded once, also in half precision."""
    if gpu:
        monkeypatch.setattr(device.backend.runtime, "features", as_gpu(device.backend.runtime.features))
    x, weight, slope = (rng.uniform(-1, 1, shape) for shape in (X, WEIGHT, RESULT))
    bias = rng.uniform(-1, 1, 4)
    check(device, "conv2d", [x, weight, bias], dtype, ulps=16, **PARAMS)
    check(device, "conv2d_input_grad", [slope, weight], dtype, ulps=16, shape=X, **PARAMS)
    check(device, "conv2d_weight_grad", [slope, x], dtype, ulps=16, kernel=(3, 3), **PARAMS)
    check(device, "conv2d_weight_grad", [slope[::-1], x[::-1]], dtype, ulps=16, kernel=(3, 3), **PARAMS)


def test_workspace_of_half_precision_is_bounded(device: Any) -> None:
    """36 images of 8000 by 8000 pixels, 4.3 GiB, have over 2^31 elements, and take 8.6 GiB in float32."""
    x, weight, params = (36, 1, 8000, 8000), (1, 1, 3, 3), {**PARAMS, "stride": (1, 1), "groups": 1}
    for op, shapes, more in (
        ("conv2d", (x, weight), {}),
        ("conv2d_input_grad", (x, weight), {"shape": x}),
        ("conv2d_weight_grad", (x, x), {"kernel": (3, 3)}),
    ):
        specs = tuple(contiguous(dtypes.float16, s) for s in shapes)
        inputs = (*specs, None) if op == "conv2d" else specs
        bound = {**OPS[op].schema.params, **params, **more}
        outputs = tuple(contiguous(d, s) for d, s in OPS[op].infer(inputs, bound))
        launch = device.backend.lower(op, inputs, outputs, bound)
        assert not isinstance(launch, Declined)
        assert sum(launch.workspace) <= conv_pieces.MAX_WORKSPACE


@pytest.mark.usefixtures("limit")
def test_captured_pieces_follow_their_operands() -> None:
    rng = np.random.default_rng(0)
    weight = rng.uniform(-1, 1, WEIGHT).astype(np.float32)
    step = ph.jit(lambda x, w: F.conv2d(x, w, stride=(2, 1), padding=1, groups=2))
    for _ in range(4):
        x = rng.uniform(-1, 1, X).astype(np.float32)
        got = step(ph.tensor(x, device="opencl"), ph.tensor(weight, device="opencl")).numpy()
        np.testing.assert_allclose(got, OPS["conv2d"].reference(x, weight, None, **PARAMS), rtol=1e-4, atol=1e-4)
