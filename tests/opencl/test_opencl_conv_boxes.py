"""Convolutions with copies of boxes of pixels by the copy engine, in portable form on any device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_harness import Harness, as_gpu
from native_ops import lower, run, upload
from test_opencl_conv_wgmma import DEFAULTS, _channels_last, _draw

from polyhal.backends.opencl import discovery
from polyhal.backends.opencl.backend import OpenCLBackend
from polyhal.backends.opencl_c.lowering.conv import boxes, channels_first, local_images, split_k
from polyhal.backends.opencl_c.lowering.conv.boxes import BoxTile, choose_box
from polyhal.hal import dtypes
from polyhal.hal.ops import OPS
from polyhal.hal.protocol import Declined


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
    if tile is SHARED:
        monkeypatch.setattr(split_k, "_MANY", 1)
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
        ("conv2d_weight_grad", [slope, image], {"kernel": weight[2:], "out_dtype": dtypes.float32}),
    ]
    for op, arrays, own in calls:
        got, launch = _channels_last(device, op, arrays, **params, **own)
        assert "conv_wgmma_boxes" in launch.name
        wide = [None if a is None else a.astype(np.float64) for a in arrays]
        want = OPS[op].reference(*wide, **params, **own)
        # Sums are accurate in float32 and rounded once, to eight bits.
        np.testing.assert_allclose(got, want, rtol=2**-8, atol=2**-8 * np.abs(want).max(), err_msg=op)


@pytest.mark.parametrize(
    ("weight", "more"),
    [((72, 64, 3, 3), {"padding": (1, 1), "stride": (2, 1)}), ((72, 64, 1, 1), {})],
    ids=["3x3", "1x1"],
)
def test_channels_first_between_transposed_copies(
    device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, weight: tuple[int, ...], more: dict[str, Any]
) -> None:
    """The planes of one operand are views of larger planes."""
    monkeypatch.setattr(boxes, "TILES", (SMALL,))
    monkeypatch.setattr(channels_first, "_MIN_WORK", 0)
    monkeypatch.setattr(local_images, "_MULTIPLY_ADDS", 0)
    params, x = DEFAULTS | more, (3, 64, 10, 9)
    image, kernel, slope = (a.astype(dtypes.float16.numpy) for a in _draw(rng, x, weight, params))
    wider = np.ascontiguousarray(np.pad(image, ((0, 0), (0, 0), (0, 1), (0, 2))))[:, :, :-1, :-2]
    bias = rng.uniform(-1, 1, weight[0]).astype(dtypes.float16.numpy)
    for op, arrays, own in (
        ("conv2d", [wider, kernel, bias], {}),
        ("conv2d_input_grad", [slope, kernel], {"shape": x}),
        ("conv2d_weight_grad", [slope, image], {"kernel": weight[2:]}),
        ("conv2d_weight_grad", [slope, image], {"kernel": weight[2:], "out_dtype": dtypes.float32}),
    ):
        refs = [upload(device, a) for a in arrays]
        launch, _ = lower(device, op, refs, {**params, **own})
        assert not isinstance(launch, Declined)
        assert "transpose" in launch.name
        assert "boxes" in launch.name or "gemm" in launch.name
        (got,) = run(device, op, arrays, **params, **own)
        want = OPS[op].reference(*(a.astype(np.float64) for a in arrays), **params, **own)
        np.testing.assert_allclose(got, want, rtol=2**-10, atol=2**-10 * np.abs(want).max(), err_msg=op)


@pytest.mark.parametrize(
    ("x", "weight", "more", "added"),
    [
        ((4, 64, 8, 8), (136, 64, 3, 3), {"padding": (1, 1)}, True),
        ((2, 64, 16, 8), (72, 64, 1, 1), {"stride": (2, 1)}, False),
        ((5, 40, 8, 8), (72, 40, 1, 1), {}, True),
    ],
    ids=["3x3", "strided", "product"],
)
def test_statistics_of_batch_norm(
    device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, x: Any, weight: Any, more: Any, added: bool
) -> None:
    """Statistics are of the convolution as it is stored. Means that are much larger than deviations do not cancel."""
    monkeypatch.setattr(boxes, "TILES", (SHARED,))
    half = dtypes.bfloat16.numpy
    params = {key: v for key, v in (DEFAULTS | more).items() if key != "groups"} | {"eps": 1e-5, "relu": added}

    def last(array: Any) -> Any:
        return np.ascontiguousarray(array.transpose(0, 2, 3, 1)).astype(half).transpose(0, 3, 1, 2)

    image, kernel, slope = _draw(rng, x, weight, DEFAULTS | more)
    image, kernel, slope = last(image + 1), last(kernel + 1), last(slope)
    scale = rng.uniform(0.5, 1.5, weight[0]).astype(np.float32)
    inputs = [
        upload(device, a) if a is not None else None for a in (image, kernel, slope if added else None, scale, None)
    ]
    specs = tuple(a and a.spec for a in inputs)
    stored = [device.empty(dtypes.bfloat16, last(slope).transpose(0, 2, 3, 1).shape) for _ in range(2)]
    images = [device.view(a, slope.shape, tuple(a.strides[axis] for axis in (0, 3, 1, 2))) for a in stored]
    statistics = [device.empty(dtypes.float32, weight[:1]) for _ in range(2)]
    outputs = [images[0], *statistics, images[1]]
    launch = device.accepted(
        device.backend.lower(
            "conv2d_batch_norm", specs, tuple(a.spec for a in outputs), {**params, "precision": "highest"}
        )
    )
    launch(*inputs, *outputs, *[device.backend.allocate(n) for n in launch.workspace])
    out, product = (device.download(a).astype(np.float64).transpose(0, 3, 1, 2) for a in stored)
    exact = OPS["conv2d"].reference(image.astype(np.float64), kernel.astype(np.float64), **DEFAULTS | more)
    np.testing.assert_allclose(product, exact, rtol=2**-8, atol=2**-8 * np.abs(exact).max())
    mean, var = (device.download(a).astype(np.float64) for a in statistics)
    # Sums of rounded elements and of their squares, in float32.
    np.testing.assert_allclose(mean, product.mean((0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(var, product.var((0, 2, 3)), rtol=1e-4)
    want = OPS["batch_norm"].reference(product, scale.astype(np.float64), None, eps=params["eps"])[0]
    want = np.maximum(want + slope.astype(np.float64), 0) if added else want
    np.testing.assert_allclose(out, want, rtol=2**-8, atol=2**-8)
