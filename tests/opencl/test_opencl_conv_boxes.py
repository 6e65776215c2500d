"""Convolutions with copies of boxes of pixels by the copy engine, in portable form on any device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_harness import Harness, as_gpu
from test_opencl_conv_wgmma import DEFAULTS, _channels_last, _draw

from polyhal.backends.opencl import discovery
from polyhal.backends.opencl.backend import OpenCLBackend
from polyhal.backends.opencl_c.lowering.conv import boxes
from polyhal.backends.opencl_c.lowering.conv.boxes import BoxTile, choose_box
from polyhal.hal import dtypes
from polyhal.hal.ops import OPS


@pytest.fixture(scope="module")
def device(any_device: discovery.OpenCLDevice) -> Harness:
    """Return one device that compiles quickly: the kernel is equal on all devices."""
    return Harness(OpenCLBackend(any_device))


@pytest.fixture(autouse=True)
def features_with_clusters(monkeypatch: pytest.MonkeyPatch, device: Any) -> None:
    features = as_gpu(device.backend.runtime.features, compute_units=5, static_local_memory=1 << 20, clusters=True)
    monkeypatch.setattr(device.backend.runtime, "features", features)


def test_boxes_cover_few_pixels_that_do_not_exist() -> None:
    """Width and height of boxes of 64 pixels; the rest of a box are images."""
    assert [choose_box(64, n, n) for n in (56, 28, 14, 7)] == [(8, 8), (4, 4), (2, 2), (1, 1)]
    assert choose_box(1, 7, 7) == (8, 8)
    assert choose_box(1, 1, 100) == (64, 1)


SMALL, SHARED = BoxTile(1, 64, 3, 1, 1.0), BoxTile(2, 128, 3, 2, 1.0)


@pytest.mark.parametrize(
    ("tile", "x", "weight", "more"),
    [
        (SHARED, (3, 72, 7, 9), (136, 72, 3, 3), {"padding": (1, 1)}),
        (SMALL, (2, 64, 12, 10), (64, 64, 3, 3), {"padding": (1, 1), "stride": (2, 2)}),
        (SHARED, (5, 48, 7, 8), (40, 48, 1, 1), {"stride": (2, 2)}),
        (SMALL, (1, 64, 9, 8), (72, 64, 3, 2), {"dilation": (2, 1), "stride": (1, 2)}),
    ],
    ids=["3x3", "strided", "sparse", "dilated"],
)
def test_geometries_edges_and_layouts_of_weights(
    device: Any,
    rng: Any,
    monkeypatch: pytest.MonkeyPatch,
    tile: BoxTile,
    x: tuple[int, ...],
    weight: tuple[int, ...],
    more: dict[str, Any],
) -> None:
    """Boxes beyond planes, images and channels; clusters of groups; weights with channels last are read in place."""
    monkeypatch.setattr(boxes, "TILES", (tile,))
    params = DEFAULTS | more
    half = dtypes.bfloat16.numpy

    def last(array: Any) -> Any:
        return np.ascontiguousarray(array.transpose(0, 2, 3, 1)).astype(half).transpose(0, 3, 1, 2)

    image, kernel, slope = _draw(rng, x, weight, params)
    image, slope, kernel = last(image), last(slope), kernel.astype(half)
    bias = rng.uniform(-1, 1, weight[0]).astype(half)
    calls: list[tuple[str, list[Any], dict[str, Any]]] = [
        ("conv2d", [image, kernel, None], {}),
        ("conv2d", [image, last(kernel), bias], {}),
        ("conv2d_input_grad", [slope, last(kernel)], {"shape": x}),
        ("conv2d_weight_grad", [slope, image], {"kernel": weight[2:]}),
    ]
    for op, arrays, own in calls:
        got, launch = _channels_last(device, op, arrays, **params, **own)
        assert "conv_wgmma_boxes" in launch.name
        wide = [None if a is None else a.astype(np.float64) for a in arrays]
        want = OPS[op].reference(*wide, **params, **own)
        # Sums are accurate in float32 and rounded once, to eight bits.
        np.testing.assert_allclose(got, want, rtol=2**-8, atol=2**-8 * np.abs(want).max(), err_msg=op)
