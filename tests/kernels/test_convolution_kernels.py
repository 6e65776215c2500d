"""Convolution and its gradients: strides, padding, dilation, groups, views, and their lowering to products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_ops import check, run

from polyhal.backends.common.problems.conv import geometry, input_gradient
from polyhal.hal import dtypes
from polyhal.hal.layout import contiguous
from polyhal.hal.ops.nn.window_shape import output_length

DEFAULTS = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
Shape = tuple[int, ...]
CASES: list[tuple[Shape, Shape, dict[str, Any]]] = [
    ((2, 17, 9, 9), (33, 17, 3, 3), {"padding": (1, 1)}),
    ((2, 12, 8, 9), (18, 6, 3, 3), {"groups": 2, "stride": (2, 3), "padding": (1, 1)}),
    ((1, 8, 17, 15), (7, 8, 3, 2), {"stride": (4, 2), "dilation": (2, 4), "padding": (0, 3)}),
    ((3, 6, 10, 11), (6, 1, 3, 3), {"groups": 6, "dilation": (2, 3), "padding": (2, 2)}),
    ((2, 6, 10, 11), (12, 1, 3, 3), {"groups": 6, "stride": (2, 2), "padding": (1, 1)}),
    ((2, 8, 8, 8), (70, 8, 1, 1), {"stride": (2, 2)}),
    ((2, 6, 5, 5), (8, 6, 5, 5), {"padding": (4, 4)}),
    ((1, 40, 12, 12), (80, 40, 3, 3), {"padding": (1, 1)}),
]


def _result(x: Shape, weight: Shape, params: dict[str, Any]) -> Shape:
    axes = zip(x[2:], weight[2:], params["stride"], params["padding"], params["dilation"], strict=True)
    return (x[0], weight[0], *(output_length(*a) for a in axes))


def _skip_where_composed(device: Any, filters: int) -> None:
    if device.backend.info.backend == "opencl" and not device.backend.features.cpu and filters > 4:
        pytest.skip("this device composes convolution of windows and a product")


def _check_all(device: Any, rng: Any, x: Shape, weight: Shape, dtype: dtypes.DType, params: dict[str, Any]) -> None:
    _skip_where_composed(device, weight[0] // params["groups"])
    image, kernel, bias = rng.uniform(-1, 1, x), rng.uniform(-1, 1, weight), rng.uniform(-1, 1, weight[0])
    g = rng.uniform(-1, 1, _result(x, weight, params))
    check(device, "conv2d", [image, kernel, bias], dtype, ulps=16, **params)
    check(device, "conv2d_input_grad", [g, kernel], dtype, ulps=16, shape=x, **params)
    check(device, "conv2d_weight_grad", [g, image], dtype, ulps=16, kernel=weight[2:], **params)


@pytest.mark.parametrize(("x", "weight", "more"), CASES)
def test_convolution(device: Any, rng: Any, x: Shape, weight: Shape, more: dict[str, Any]) -> None:
    _check_all(device, rng, x, weight, dtypes.float32, DEFAULTS | more)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
def test_half_precision(device: Any, rng: Any, dtype: dtypes.DType) -> None:
    _check_all(device, rng, (2, 17, 8, 8), (33, 17, 3, 3), dtype, DEFAULTS | {"padding": (1, 1)})


def test_views(device: Any, rng: Any) -> None:
    """Images with channels last and transposed weights are not copied."""
    _skip_where_composed(device, 5)
    image = rng.uniform(-1, 1, (2, 8, 9, 5)).transpose(0, 3, 1, 2)
    weight = rng.uniform(-1, 1, (5, 9, 3, 3)).transpose(1, 0, 2, 3)
    check(device, "conv2d", [image, weight, None], ulps=16, **DEFAULTS)
    g = rng.uniform(-1, 1, (2, 6, 7, 9)).transpose(0, 3, 1, 2)
    check(device, "conv2d_input_grad", [g, weight], ulps=16, shape=(2, 5, 8, 9), **DEFAULTS)
    check(device, "conv2d_weight_grad", [g, image], ulps=16, kernel=(3, 3), **DEFAULTS)


def test_sums_of_many_terms_are_split(device: Any, rng: Any) -> None:
    _skip_where_composed(device, 18)
    image, g = rng.uniform(-1, 1, (6, 6, 40, 40)), rng.uniform(-1, 1, (6, 18, 40, 40))
    params = DEFAULTS | {"padding": (1, 1)}
    check(device, "conv2d_weight_grad", [g, image], ulps=100, kernel=(3, 3), **params)
    image, weight = rng.uniform(-1, 1, (1, 600, 3, 3)), rng.uniform(-1, 1, (20, 600, 3, 3))
    check(device, "conv2d", [image, weight, rng.uniform(-1, 1, 20)], ulps=80, **params)


def test_padding_excludes_nan_outside_of_the_image(device: Any) -> None:
    """Memory around an image does not affect windows that extend beyond it."""
    _skip_where_composed(device, 18)
    image = np.full((3, 2, 4, 4), np.nan, np.float32)
    image[1] = 1
    weight = np.ones((18, 2, 3, 3), np.float32)
    (out,) = run(device, "conv2d", [image, weight, None], **DEFAULTS | {"padding": (1, 1)})
    np.testing.assert_array_equal(out[1, 0, 0], [8, 12, 12, 8])
    assert np.isnan(out[0]).all()


@pytest.mark.parametrize("stride", [(1, 1), (2, 3), (4, 1)])
@pytest.mark.parametrize("dilation", [(1, 1), (2, 1), (3, 4)])
def test_input_gradients_use_every_tap_once(stride: tuple[int, int], dilation: tuple[int, int]) -> None:
    x, weight = (1, 1, 23, 19), (1, 1, 4, 3)
    params = DEFAULTS | {"stride": stride, "dilation": dilation, "padding": (2, 1)}
    result = _result(x, weight, params)
    specs = [contiguous(dtypes.float32, s) for s in (result, weight, x)]
    parts = input_gradient(geometry(x, weight, result, params), *specs)
    assert len({c.out_offset for c in parts}) == len(parts)
    assert sum(c.n for c in parts) <= 23 * 19
    taps = sum(c.n * c.k for c in parts)
    every = sum(
        (y + params["padding"][0] - r * dilation[0]) % stride[0] == 0
        and (z + params["padding"][1] - s * dilation[1]) % stride[1] == 0
        for y in range(23)
        for z in range(19)
        for r in range(4)
        for s in range(3)
    )
    assert taps == every
