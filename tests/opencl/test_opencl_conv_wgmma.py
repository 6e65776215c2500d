"""Convolution by wgmma, as the portable fallback of Hopper's instructions: every dtype and every kind of geometry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from native_harness import Harness, as_gpu
from native_ops import check, run, upload

from polyhal.backends.opencl import discovery
from polyhal.backends.opencl.backend import OpenCLBackend
from polyhal.backends.opencl_c.lowering.conv import tile_configs, wgmma
from polyhal.backends.opencl_c.lowering.conv.tile_configs import WgmmaTile
from polyhal.hal import dtypes
from polyhal.hal.core.settings.precision import float32_matmul_precision
from polyhal.hal.ops import OPS
from polyhal.hal.ops.nn.window_shape import output_length

DEFAULTS = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 16, 9, 7), (70, 16, 3, 3), {"padding": (1, 1)}),
    ((1, 40, 11, 6), (9, 40, 3, 2), {"stride": (2, 1), "padding": (1, 0)}),
    ((2, 16, 8, 9), (18, 8, 3, 3), {"groups": 2, "stride": (2, 3), "padding": (1, 1)}),
    ((1, 8, 13, 11), (10, 8, 3, 2), {"dilation": (2, 3), "padding": (1, 2)}),
    ((3, 72, 5, 5), (8, 72, 1, 1), {}),
    ((1, 13, 6, 6), (20, 13, 5, 5), {"padding": (4, 4)}),
    ((2, 8, 7, 8), (12, 8, 1, 2), {"stride": (3, 2)}),
    ((2, 3, 9, 10), (20, 3, 5, 4), {"stride": (1, 2), "padding": (1, 2)}),
]


@pytest.fixture(scope="module")
def device(any_device: discovery.OpenCLDevice) -> Harness:
    """Return one device that compiles quickly: the source is the same on all devices."""
    return Harness(OpenCLBackend(any_device))


@pytest.fixture(autouse=True)
def hopper(device: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the device look like a small Hopper for which no problem is too small."""
    runtime = device.backend.runtime
    if not runtime.features.tensor_cores:
        small = {1: (WgmmaTile(1, 64, 64, 3, 1, 1.0),), 3: (WgmmaTile(1, 64, 32, 3, 3, 1.0),)}
        monkeypatch.setattr(tile_configs, "WGMMA_TILES", small)
    monkeypatch.setattr(wgmma, "_packing_is_faster", lambda *_: True)
    units = as_gpu(runtime.features, compute_units=4, static_local_memory=1 << 18)
    monkeypatch.setattr(runtime, "features", units)
    told = replace(device.backend.capabilities, settings=frozenset({"precision"}))
    monkeypatch.setattr(device.backend, "capabilities", told)
    with float32_matmul_precision("high"):
        yield


def _draw(rng: Any, x: tuple[int, ...], weight: tuple[int, ...], params: dict[str, Any]) -> tuple[Any, Any, Any]:
    axes = zip(x[2:], weight[2:], params["stride"], params["padding"], params["dilation"], strict=True)
    result = (x[0], weight[0], *(output_length(*a) for a in axes))
    return rng.uniform(-1, 1, x), rng.uniform(-1, 1, weight), rng.uniform(-1, 1, result)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_every_geometry(device: Any, rng: Any, case: int) -> None:
    x, weight, more = CASES[case]
    params = DEFAULTS | more
    image, kernel, slope = _draw(rng, x, weight, params)
    check(device, "conv2d", [image, kernel, rng.uniform(-1, 1, weight[0])], ulps=16, **params)
    check(device, "conv2d_input_grad", [slope, kernel], ulps=16, shape=x, **params)
    check(device, "conv2d_weight_grad", [slope, image], ulps=16, kernel=weight[2:], **params)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
def test_halves(device: Any, rng: Any, dtype: dtypes.DType) -> None:
    params = DEFAULTS | {"padding": (1, 1), "stride": (2, 1)}
    x, weight = (2, 8, 9, 8), (12, 8, 3, 3)
    image, kernel, slope = _draw(rng, x, weight, params)
    check(device, "conv2d", [image, kernel, rng.uniform(-1, 1, 12)], dtype, ulps=16, **params)
    check(device, "conv2d_input_grad", [slope, kernel], dtype, ulps=16, shape=x, **params)
    check(device, "conv2d_weight_grad", [slope, image], dtype, ulps=16, kernel=(3, 3), **params)


def test_split_k(device: Any, rng: Any) -> None:
    """Few results with a long k axis; repeated runs are bitwise equal."""
    params = DEFAULTS | {"padding": (1, 1)}
    x, weight = (2, 240, 5, 5), (6, 240, 3, 3)
    image, kernel, slope = _draw(rng, x, weight, params)
    check(device, "conv2d", [image, kernel, rng.uniform(-1, 1, 6)], ulps=32, **params)
    x, weight = (8, 8, 16, 17), (6, 8, 3, 3)
    image, kernel, slope = (a.astype(np.float32) for a in _draw(rng, x, weight, params))
    check(device, "conv2d_weight_grad", [slope, image], ulps=32, kernel=(3, 3), **params)
    one, two = (run(device, "conv2d_weight_grad", [slope, image], kernel=(3, 3), **params)[0] for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_views(device: Any, rng: Any) -> None:
    """Operands are channels-last views and flipped views."""
    image = rng.uniform(-1, 1, (2, 8, 9, 8)).transpose(0, 3, 1, 2)
    kernel, slope = rng.uniform(-1, 1, (9, 8, 3, 3)), rng.uniform(-1, 1, (2, 6, 7, 9)).transpose(0, 3, 1, 2)
    check(device, "conv2d", [image, kernel[:, :, ::-1, ::-1], None], ulps=16, **DEFAULTS)
    check(device, "conv2d_input_grad", [slope, kernel[::-1]], ulps=16, shape=image.shape, **DEFAULTS)
    check(device, "conv2d_weight_grad", [slope[:, ::-1], image[:, ::-1]], ulps=16, kernel=(3, 3), **DEFAULTS)


def _channels_last(device: Any, op: str, arrays: list[Any], **params: Any) -> tuple[np.ndarray, Any]:
    """The result, stored with channels last unless it has the shape of a weight, and the launch."""
    refs = [upload(device, x) if x is not None else x for x in arrays]
    bound = {**OPS[op].schema.params, **params}
    ((dtype, shape),) = OPS[op].infer(tuple(x and x.spec for x in refs), bound)
    order = (0, 1, 2, 3) if op.endswith("weight_grad") else (0, 2, 3, 1)
    stored = device.empty(dtype, [shape[axis] for axis in order])
    strides = dict(zip(order, stored.strides, strict=True))
    out = device.view(stored, shape, tuple(strides[axis] for axis in range(4)))
    launch = device.accepted(device.backend.lower(op, tuple(x and x.spec for x in refs), (out.spec,), bound))
    device.backend.fill(77, stored)
    launch(*refs, out, *[device.backend.allocate(n) for n in launch.workspace])
    return device.download(stored).astype(np.float64).transpose(np.argsort(order)), launch


@pytest.mark.parametrize(
    ("x", "weight", "more"),
    [
        ((2, 16, 7, 9), (24, 16, 3, 3), {"padding": (1, 1)}),
        ((2, 8, 8, 6), (16, 8, 3, 3), {"padding": (1, 1), "stride": (2, 2)}),
        ((3, 72, 5, 4), (40, 72, 1, 1), {}),
        ((2, 16, 7, 8), (16, 16, 1, 1), {"stride": (2, 2)}),
        ((2, 240, 4, 4), (16, 240, 3, 3), {"padding": (1, 1)}),
        ((1, 3, 13, 16), (8, 3, 7, 7), {"stride": (2, 2), "padding": (3, 3)}),
    ],
    ids=["3x3", "strided", "1x1", "sparse", "split", "stem"],
)
def test_channels_last(device: Any, rng: Any, x: tuple[int, ...], weight: tuple[int, ...], more: Any) -> None:
    """Images in half precision with channels last are read in place if whole vectors of channels are aligned."""
    params = DEFAULTS | more
    half = dtypes.bfloat16.numpy

    def last(array: Any) -> Any:
        return np.ascontiguousarray(array.transpose(0, 2, 3, 1)).astype(half).transpose(0, 3, 1, 2)

    image, kernel, slope = _draw(rng, x, weight, params)
    image, slope, kernel = last(image), last(slope), kernel.astype(half)
    bias = rng.uniform(-1, 1, weight[0]).astype(half)
    calls: list[tuple[str, list[Any], dict[str, Any]]] = [
        ("conv2d", [image, kernel, None], {}),
        ("conv2d", [image, kernel, bias], {}),
        ("conv2d_input_grad", [slope, kernel], {"shape": x}),
        ("conv2d_weight_grad", [slope, image], {"kernel": weight[2:]}),
    ]
    for op, arrays, own in calls:
        got, launch = _channels_last(device, op, arrays, **params, **own)
        wide = [None if a is None else a.astype(np.float64) for a in arrays]
        want = OPS[op].reference(*wide, **params, **own)
        # Sums are accurate in float32 and rounded once, to eight bits.
        np.testing.assert_allclose(got, want, rtol=2**-8, atol=2**-8 * np.abs(want).max())
        product = weight[2:] == (1, 1) and "stride" not in more
        assert ("gemm" in launch.name) == product
        packs = 0 if op.endswith("weight_grad") or product else int(weight[2:] != (1, 1) or op == "conv2d_input_grad")
        packs += x[1] % 8 != 0 and op != "conv2d_input_grad"
        assert ("wgmma_pack" in launch.name) == (packs > 0)


def test_numbers_that_cannot_be_split(device: Any, rng: Any) -> None:
    """Infinity, NaN and numbers near the maximum have the results of float32, with split-K too."""
    image = rng.uniform(-1, 1, (1, 130, 8, 9)).astype(np.float32)
    kernel = rng.uniform(0.1, 0.2, (5, 130, 3, 3)).astype(np.float32)
    image[0, 1, 2, 2], image[0, 0, 6, 7], image[0, 2, 2, 7], image[0, 2, 6, 1] = np.inf, np.nan, -np.inf, 3.4e38
    (out,) = run(device, "conv2d", [image, kernel, None], **DEFAULTS)
    wide = image.astype(np.float64), kernel.astype(np.float64)
    want = OPS["conv2d"].reference(*wide, None, **DEFAULTS)
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)
    slope = rng.uniform(0.1, 0.2, (1, 5, 6, 7)).astype(np.float32)
    (out,) = run(device, "conv2d_weight_grad", [slope, image[:, :8]], kernel=(3, 3), **DEFAULTS)
    want = OPS["conv2d_weight_grad"].reference(slope.astype(np.float64), wide[0][:, :8], kernel=(3, 3), **DEFAULTS)
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)


def test_splits_cover_the_k_axis(device: Any, rng: Any) -> None:
    """For any shape, splits are whole k-slices, none is empty, and tiles fit on the device."""
    runtime = device.backend.runtime
    for rows, columns, k in rng.integers(1, 1 << 16, (200, 3)).tolist():
        for terms in tile_configs.WGMMA_TILES:
            tile, splits, k_per_split = tile_configs.choose_wgmma_tile(runtime, terms, (rows, columns, k, 1))
            assert (splits - 1) * k_per_split < k <= splits * k_per_split
            assert k_per_split % tile.depth == 0
            assert tile.local_memory <= runtime.features.static_local_memory
            _, one, _ = tile_configs.choose_wgmma_tile(runtime, terms, (rows, columns, k, 1), splittable=False)
            assert one == 1
