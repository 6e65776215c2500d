"""Convolution as an implicit matrix product, on every device: each kind of tile and every kind of geometry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conv_infinities import check_infinities
from native_harness import as_gpu
from native_ops import check, run

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.opencl_c.lowering.conv import implicit_gemm, local_images
from polyhal.backends.opencl_c.lowering.conv.tile_configs import TileConfig
from polyhal.hal import dtypes
from polyhal.hal.ops import OPS
from polyhal.hal.ops.nn.window_shape import output_length

pytestmark = pytest.mark.slow

DEFAULTS = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
# Plain elements; float32 as three bfloat16 terms; 16-bit elements. The tiles are small so that they compile fast.
TILES = [TileConfig(32, 32, 1, 1), TileConfig(32, 64, 1, 1, 16, terms=3)]
NARROW_TILE = TileConfig(64, 32, 1, 1, item_width=4)
HALF_TILE = TileConfig(64, 32, 2, 1, 16, terms=1)
CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 17, 9, 9), (33, 17, 3, 3), {"padding": (1, 1)}),
    ((1, 5, 17, 6), (9, 5, 3, 2), {"stride": (2, 1), "padding": (1, 0)}),
    ((2, 12, 8, 9), (18, 6, 3, 3), {"groups": 2, "stride": (2, 3), "padding": (1, 1)}),
    ((2, 6, 12, 14), (8, 6, 3, 3), {"dilation": (2, 3), "padding": (3, 2)}),
    ((1, 6, 13, 11), (10, 3, 3, 2), {"groups": 2, "dilation": (2, 3), "stride": (3, 2), "padding": (1, 2)}),
    ((2, 8, 8, 8), (70, 8, 1, 1), {}),
    ((2, 7, 7, 8), (6, 7, 1, 1), {"stride": (2, 2)}),
    ((1, 3, 30, 30), (8, 3, 7, 7), {"stride": (2, 2), "padding": (3, 3)}),
    ((2, 6, 5, 5), (8, 6, 5, 5), {"padding": (4, 4)}),
    ((2, 6, 9, 11), (12, 1, 3, 3), {"groups": 6, "padding": (1, 1), "stride": (1, 2)}),
    # Input gradients whose phases are separate, because they fill the rows of a tile.
    ((1, 32, 8, 9), (3, 32, 4, 4), {"padding": (1, 1), "stride": (2, 2)}),
    ((2, 64, 7, 8), (6, 32, 3, 3), {"groups": 2, "padding": (1, 0), "stride": (2, 3)}),
    ((1, 32, 9, 9), (3, 32, 1, 1), {"stride": (2, 2)}),
    ((1, 32, 6, 7), (3, 32, 5, 2), {"padding": (3, 1), "stride": (1, 2)}),
]


def _use(device: Any, monkeypatch: pytest.MonkeyPatch, tile: TileConfig, *, asynchronous: bool = True) -> None:
    """Make the device look like a GPU whose convolutions all use this tile, on tensor cores if it has any."""
    runtime = device.backend.runtime
    if runtime.features.tensor_cores:
        tile = replace(tile, tensor_cores=tile.terms > 0, asynchronous=asynchronous)
    monkeypatch.setattr(local_images, "_MULTIPLY_ADDS", 0)
    monkeypatch.setattr(implicit_gemm, "choose_tile", lambda *_, **__: tile)
    monkeypatch.setattr(runtime, "features", as_gpu(runtime.features))


@pytest.fixture
def bf16x3(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _use(device, monkeypatch, TILES[1])


def _draw(rng: Any, x: tuple[int, ...], weight: tuple[int, ...], params: dict[str, Any]) -> tuple[Any, Any, Any]:
    axes = zip(x[2:], weight[2:], params["stride"], params["padding"], params["dilation"], strict=True)
    result = (x[0], weight[0], *(output_length(*a) for a in axes))
    return rng.uniform(-1, 1, x), rng.uniform(-1, 1, weight), rng.uniform(-1, 1, result)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_every_geometry(device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, case: int) -> None:
    _check_geometry(device, rng, monkeypatch, TILES[case % 2], case)


@pytest.mark.parametrize("case", [0, 2, 5, 10, 13])
def test_geometries_in_narrow_tiles(device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, case: int) -> None:
    _check_geometry(device, rng, monkeypatch, NARROW_TILE, case)


def _check_geometry(device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, tile: TileConfig, case: int) -> None:
    _use(device, monkeypatch, tile)
    x, weight, more = CASES[case]
    params = DEFAULTS | more
    image, kernel, slope = _draw(rng, x, weight, params)
    bias = rng.uniform(-1, 1, weight[0])
    check(device, "conv2d", [image, kernel, bias], ulps=16, **params)
    check(device, "conv2d_input_grad", [slope, kernel], ulps=16, shape=x, **params)
    check(device, "conv2d_weight_grad", [slope, image], ulps=16, kernel=weight[2:], **params)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float64], ids=lambda d: d.name)
def test_dtypes(device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, dtype: dtypes.DType) -> None:
    _use(device, monkeypatch, HALF_TILE if dtype.itemsize == 2 else TILES[0], asynchronous=False)
    params = DEFAULTS | {"padding": (1, 1), "stride": (2, 1)}
    x, weight = (2, 5, 9, 8), (12, 5, 3, 3)
    image, kernel, slope = _draw(rng, x, weight, params)
    check(device, "conv2d", [image, kernel, rng.uniform(-1, 1, 12)], dtype, ulps=16, **params)
    check(device, "conv2d_input_grad", [slope, kernel], dtype, ulps=16, shape=x, **params)
    check(device, "conv2d_weight_grad", [slope, image], dtype, ulps=16, kernel=(3, 3), **params)


def test_split_k(device: Any, rng: Any, bf16x3: None) -> None:
    """Few results with a long k axis; repeated runs are bitwise equal."""
    params = DEFAULTS | {"padding": (1, 1)}
    x, weight = (2, 60, 6, 6), (6, 60, 3, 3)
    image, kernel, slope = _draw(rng, x, weight, params)
    check(device, "conv2d", [image, kernel, rng.uniform(-1, 1, 6)], ulps=32, **params)
    x, weight = (3, 4, 16, 17), (6, 4, 3, 3)
    image, kernel, slope = (a.astype(np.float32) for a in _draw(rng, x, weight, params))
    check(device, "conv2d_weight_grad", [slope, image], ulps=32, kernel=(3, 3), **params)
    one, two = (run(device, "conv2d_weight_grad", [slope, image], kernel=(3, 3), **params)[0] for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_views(device: Any, rng: Any, bf16x3: None) -> None:
    """Operands are channels-last views and flipped views."""
    image = rng.uniform(-1, 1, (2, 8, 9, 5)).transpose(0, 3, 1, 2)
    kernel, slope = rng.uniform(-1, 1, (9, 5, 3, 3)), rng.uniform(-1, 1, (2, 6, 7, 9)).transpose(0, 3, 1, 2)
    check(device, "conv2d", [image, kernel[:, :, ::-1, ::-1], None], ulps=16, **DEFAULTS)
    check(device, "conv2d_input_grad", [slope, kernel[::-1]], ulps=16, shape=image.shape, **DEFAULTS)
    check(device, "conv2d_weight_grad", [slope[:, ::-1], image[:, ::-1]], ulps=16, kernel=(3, 3), **DEFAULTS)


def test_numbers_that_cannot_be_split(device: Any, rng: Any, bf16x3: None) -> None:
    """Infinity, NaN and numbers near the maximum have the results of float32."""
    image, kernel = (
        rng.uniform(-1, 1, (1, 3, 8, 9)).astype(np.float32),
        rng.uniform(0.1, 0.2, (5, 3, 3, 3)).astype(np.float32),
    )
    image[0, 1, 2, 2], image[0, 0, 6, 7], image[0, 2, 2, 7], image[0, 2, 6, 1] = np.inf, np.nan, -np.inf, 3.4e38
    (out,) = run(device, "conv2d", [image, kernel, None], **DEFAULTS)
    want = OPS["conv2d"].reference(image.astype(np.float64), kernel.astype(np.float64), None, **DEFAULTS)
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "tile", [*TILES, NARROW_TILE, HALF_TILE], ids=lambda t: f"{t.terms} terms, width {t.item_width}"
)
@pytest.mark.parametrize("case", [1, 4, 6, 7, 8, 9, 10, 11, 13])
def test_infinite_gradients_only_reach_pixels_under_their_windows(
    device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, tile: TileConfig, case: int
) -> None:
    """No tap reads pixels of other phases: a factor of 0 would turn them into NaN."""
    _use(device, monkeypatch, tile, asynchronous=False)
    x, weight, more = CASES[case]
    check_infinities(device, rng, x, weight, DEFAULTS | more, np.float16 if tile.terms == 1 else np.float32)


@pytest.mark.parametrize("case", [1, 4])
def test_partial_input_gradients_have_infinities_under_their_windows_alone(
    device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, case: int
) -> None:
    _use(device, monkeypatch, TILES[0])
    monkeypatch.setattr(
        implicit_gemm, "split_tile", lambda _, tile, tiles, k: (2, ceil_div(k, 2 * tile.depth) * tile.depth)
    )
    x, weight, more = CASES[case]
    check_infinities(device, rng, x, weight, DEFAULTS | more, np.float32)


def test_zero_weights_are_factors(device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of 0 and -0 are factors: times infinity they are NaN, in contrast to absent taps."""
    _use(device, monkeypatch, TILES[0])
    params = DEFAULTS | {"stride": (2, 2)}
    slope = np.zeros((1, 1, 3, 3), np.float32)
    slope[0, 0, 1, 1] = np.inf
    for zero in (0.0, -0.0, -1e-45):
        kernel = np.full((1, 2, 3, 3), zero, np.float32)
        (got,) = run(device, "conv2d_input_grad", [slope, kernel], shape=(1, 2, 7, 7), **params)
        expected = np.zeros((1, 2, 7, 7))
        expected[:, :, 2:5, 2:5] = 1
        np.testing.assert_array_equal(~np.isfinite(got), expected == 1)
