"""Convolution and pooling: strides, padding, dilation, groups, and more images than are unrolled at once."""

from __future__ import annotations

from typing import Any

import pytest
from native_ops import check

from polyhal.backends.opencl.lowering import convolution
from polyhal.hal import dtypes
from polyhal.hal.ops import OPS
from polyhal.hal.ops.convolution import output_length

DEFAULTS = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 17, 9, 9), (33, 17, 3, 3), {"padding": (1, 1)}),
    ((1, 5, 17, 6), (9, 5, 3, 2), {"stride": (2, 1), "padding": (1, 0)}),
    ((2, 12, 8, 9), (18, 6, 3, 3), {"groups": 2, "stride": (2, 3), "padding": (1, 1)}),
    ((3, 6, 10, 11), (6, 1, 3, 3), {"groups": 6, "dilation": (2, 3), "padding": (2, 2)}),
    ((2, 6, 10, 11), (12, 1, 3, 3), {"groups": 6, "stride": (2, 2), "padding": (1, 1)}),
    ((2, 8, 7, 7), (70, 8, 1, 1), {}),
    ((1, 3, 30, 30), (8, 3, 7, 7), {"stride": (2, 2), "padding": (3, 3)}),
    ((2, 6, 5, 5), (8, 6, 5, 5), {"padding": (4, 4)}),
]  # fmt: skip


def _gradient_shape(x: tuple[int, ...], weight: tuple[int, ...], params: dict[str, Any]) -> tuple[int, ...]:
    axes = zip(x[2:], weight[2:], params["stride"], params["padding"], params["dilation"], strict=True)
    return (x[0], weight[0], *(output_length(*a) for a in axes))


def _skip_where_composed(device: Any, weight: tuple[int, ...], groups: int) -> None:
    if not device.backend.features.cpu and weight[0] // groups > 4:
        pytest.skip("this device composes convolution of windows and a product")


@pytest.mark.parametrize(("x", "weight", "more"), CASES)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.float64], ids=lambda d: d.name)
def test_convolution(
    device: Any, rng: Any, x: tuple[int, ...], weight: tuple[int, ...], more: dict[str, Any], dtype: dtypes.DType
) -> None:
    params = DEFAULTS | more
    _skip_where_composed(device, weight, params["groups"])
    image, kernel, bias = rng.uniform(-1, 1, x), rng.uniform(-1, 1, weight), rng.uniform(-1, 1, weight[0])
    g = rng.uniform(-1, 1, _gradient_shape(x, weight, params))
    check(device, "conv2d", [image, kernel, bias], dtype, ulps=16, **params)
    check(device, "conv2d", [image, kernel, None], dtype, ulps=16, **params)
    check(device, "conv2d_input_grad", [g, kernel], dtype, ulps=16, shape=x, **params)
    check(device, "conv2d_weight_grad", [g, image], dtype, ulps=16, kernel=weight[2:], **params)


def test_images_are_unrolled_in_parts(device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "_PACKED_BYTES", 100_000)
    x, weight, params = (7, 6, 12, 12), (10, 6, 3, 3), DEFAULTS | {"padding": (1, 1)}
    _skip_where_composed(device, weight, 1)
    image, kernel = rng.uniform(-1, 1, x), rng.uniform(-1, 1, weight)
    g = rng.uniform(-1, 1, _gradient_shape(x, weight, params))
    check(device, "conv2d", [image, kernel, None], ulps=16, **params)
    check(device, "conv2d_input_grad", [g, kernel], ulps=16, shape=x, **params)
    check(device, "conv2d_weight_grad", [g, image], ulps=32, kernel=weight[2:], **params)


def test_channels_last_views(device: Any, rng: Any) -> None:
    _skip_where_composed(device, (9, 5), 1)
    image = rng.uniform(-1, 1, (2, 8, 9, 5)).transpose(0, 3, 1, 2)
    check(device, "conv2d", [image, rng.uniform(-1, 1, (9, 5, 3, 3)), None], ulps=16, **DEFAULTS)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "padding", "dilation"),
    [((2, 3, 6, 8), (2, 2), (2, 2), (0, 0), (1, 1)), ((1, 2, 17, 15), (3, 2), (2, 1), (1, 1), (1, 1)),
     ((2, 2, 20, 20), (3, 3), (1, 2), (1, 1), (2, 3)), ((1, 1, 5, 5), (5, 5), (5, 5), (2, 2), (1, 1))],
)  # fmt: skip
def test_pooling(
    device: Any, rng: Any, shape: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, dtype: dtypes.DType
) -> None:
    # Few distinct values, so that windows have several largest elements.
    x = rng.integers(-3, 3, shape).astype(float)
    common = {"kernel": kernel, "stride": stride, "padding": padding}
    check(device, "max_pool2d", [x], dtype, ulps=0, **common, dilation=dilation)
    g = rng.integers(-8, 8, OPS["max_pool2d"].reference(x, **common, dilation=dilation).shape).astype(float)
    check(device, "max_pool2d_grad", [g, x], dtype, **common, dilation=dilation)
    for include in (True, False):
        check(device, "avg_pool2d", [x], dtype, **common, count_include_pad=include)
        pooled = OPS["avg_pool2d"].reference(x, **common, count_include_pad=include)
        slope = rng.uniform(-1, 1, pooled.shape)
        check(device, "avg_pool2d_grad", [slope], dtype, shape=shape, **common, count_include_pad=include)
