"""Pooling against its reference: odd sizes, windows that overlap, padding, NaN, views."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_ops import check, upload

from polyhal.hal import dtypes
from polyhal.hal.layout import contiguous
from polyhal.hal.ops import OPS
from polyhal.hal.protocol import Declined

CASES: list[dict[str, Any]] = [
    {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0)},
    {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 1)},
    {"kernel": (3, 3), "stride": (1, 2), "padding": (1, 0)},
]


def _pooled(op: str, x: np.ndarray, params: dict[str, Any]) -> np.ndarray:
    return OPS[op].reference(x, **params)  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("case", CASES, ids=lambda c: str(c["kernel"]))
def test_max(device: Any, rng: Any, dtype: dtypes.DType, case: dict[str, Any]) -> None:
    params = {**case, "dilation": (1, 1)}
    # Few distinct values, so that windows contain equal values.
    x = rng.integers(-9, 9, (2, 3, 17, 21)).astype(np.float64)
    check(device, "max_pool2d", [x], dtype, ulps=0, **params)
    g = rng.integers(-9, 9, _pooled("max_pool2d", x, params).shape).astype(np.float64)
    check(device, "max_pool2d_grad", [g, x], dtype, ulps=0, **params)
    check(device, "max_pool2d_indices", [x], dtype, **params)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16], ids=lambda d: d.name)
@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("case", CASES, ids=lambda c: str(c["kernel"]))
def test_average(device: Any, rng: Any, dtype: dtypes.DType, include: bool, case: dict[str, Any]) -> None:
    params = {**case, "count_include_pad": include}
    x = rng.uniform(-1, 1, (2, 3, 17, 21))
    check(device, "avg_pool2d", [x], dtype, ulps=8, **params)
    g = rng.uniform(-1, 1, _pooled("avg_pool2d", x, params).shape)
    check(device, "avg_pool2d_grad", [g], dtype, ulps=8, shape=x.shape, **params)


def test_channels_last(device: Any, rng: Any) -> None:
    """Images may have channels last; results too, where the kernels accept it."""
    params = {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 1)}
    x = rng.integers(-9, 9, (2, 9, 7, 8)).astype(np.float32).transpose(0, 3, 1, 2)
    pooled = OPS["max_pool2d"].reference(x, **params, dilation=(1, 1))
    g = (
        rng.integers(-9, 9, (pooled.shape[0], *pooled.shape[2:], pooled.shape[1]))
        .astype(np.float32)
        .transpose(0, 3, 1, 2)
    )
    calls: list[tuple[str, list[Any], dict[str, Any]]] = [
        ("max_pool2d", [x], {"dilation": (1, 1)}),
        ("max_pool2d_grad", [g, x], {"dilation": (1, 1)}),
        ("avg_pool2d", [x], {}),
        ("avg_pool2d_grad", [g], {"shape": x.shape}),
    ]
    for op, arrays, own in calls:
        check(device, op, arrays, ulps=8, **params, **own)
        want = OPS[op].reference(*arrays, **params, **own)
        got = _with_channels_last(device, op, arrays, {**params, **own})
        if got is not None:
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
def test_special_maxima_with_channels_last(device: Any, rng: Any, dtype: dtypes.DType) -> None:
    """Padding is never a maximum, not even of -infinity, and the last of several NaN is."""
    params = {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1), "dilation": (1, 1)}
    x = rng.integers(-4, 4, (2, 7, 9, 16)).astype(np.float64)
    chance = rng.random(x.shape)
    x[chance < 0.1], x[chance > 0.6] = np.nan, -np.inf
    x = x.astype(dtype.numpy).transpose(0, 3, 1, 2)
    pooled = OPS["max_pool2d"].reference(x.astype(np.float64), **params)
    g = rng.integers(-8, 8, (2, *pooled.shape[2:], 16)).astype(dtype.numpy).transpose(0, 3, 1, 2)
    slopes = OPS["max_pool2d_grad"].reference(g.astype(np.float64), x.astype(np.float64), **params)
    for op, arrays, want in (("max_pool2d", [x], pooled), ("max_pool2d_grad", [g, x], slopes)):
        got = _with_channels_last(device, op, arrays, params)
        if got is not None:
            np.testing.assert_array_equal(got.astype(np.float64), want)


def _with_channels_last(device: Any, op: str, arrays: list[Any], params: dict[str, Any]) -> np.ndarray | None:
    """Return a result that is stored with channels last; None where the kernels do not accept that."""
    refs = [upload(device, a) for a in arrays]
    bound = {**OPS[op].schema.params, **params}
    ((dtype, (n, c, h, w)),) = OPS[op].infer(tuple(r.spec for r in refs), bound)
    stored = device.empty(dtype, (n, h, w, c))
    out = device.view(stored, (n, c, h, w), (h * w * c, 1, w * c, c))
    launch = device.backend.lower(op, tuple(r.spec for r in refs), (out.spec,), bound)
    if isinstance(launch, Declined):
        return None
    launch(*refs, out, *[device.backend.allocate(n) for n in launch.workspace])
    return device.download(stored).transpose(0, 3, 1, 2)  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "padding", "dilation"),
    [
        ((2, 3, 6, 8), (2, 2), (2, 2), (0, 0), (1, 1)),
        ((1, 2, 17, 15), (3, 2), (2, 1), (1, 1), (1, 1)),
        ((2, 3, 4, 22), (2, 2), (2, 2), (0, 0), (1, 1)),
        ((3, 2, 8, 8), (2, 2), (2, 2), (0, 0), (1, 1)),
        ((3, 1, 4, 16), (2, 2), (2, 2), (0, 0), (1, 1)),
        ((2, 2, 20, 20), (3, 3), (1, 2), (1, 1), (2, 3)),
        ((1, 1, 5, 5), (5, 5), (5, 5), (2, 2), (1, 1)),
        ((3, 2, 9, 45), (3, 3), (2, 2), (1, 1), (1, 1)),
        ((2, 1, 8, 60), (2, 4), (3, 3), (1, 2), (1, 1)),
    ],
)
def test_windows_of_any_shape(
    device: Any, rng: Any, shape: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, dtype: dtypes.DType
) -> None:
    x = rng.integers(-3, 3, shape).astype(float)
    common = {"kernel": kernel, "stride": stride, "padding": padding}
    check(device, "max_pool2d", [x], dtype, ulps=0, **common, dilation=dilation)
    g = rng.integers(-8, 8, OPS["max_pool2d"].reference(x, **common, dilation=dilation).shape).astype(float)
    check(device, "max_pool2d_grad", [g, x], dtype, **common, dilation=dilation)
    x[0, 0, :3, :3] = -np.inf
    check(device, "max_pool2d_grad", [g, x], dtype, **common, dilation=dilation)
    x.flat[::5] = np.nan
    check(device, "max_pool2d", [x], dtype, ulps=0, **common, dilation=dilation)
    check(device, "max_pool2d_grad", [g, x], dtype, **common, dilation=dilation)
    check(device, "max_pool2d_indices", [x], dtype, **common, dilation=dilation)
    for include in (True, False):
        check(device, "avg_pool2d", [x], dtype, **common, count_include_pad=include)
        pooled = OPS["avg_pool2d"].reference(x, **common, count_include_pad=include)
        slope = rng.uniform(-1, 1, pooled.shape)
        check(device, "avg_pool2d_grad", [slope], dtype, shape=shape, **common, count_include_pad=include)


def test_views_dilation_and_special_values(device: Any, rng: Any) -> None:
    x = rng.uniform(-1, 1, (19, 3, 22, 2)).transpose(3, 1, 0, 2)[:, :, ::-1, 1:]
    params: dict[str, Any] = {"kernel": (2, 3), "stride": (1, 2), "padding": (0, 1), "dilation": (2, 2)}
    check(device, "max_pool2d", [x], ulps=0, **params)
    x = x.copy()
    x[0, 0, 3, 4], x[1, 1] = np.nan, -np.inf
    check(device, "max_pool2d", [x], ulps=0, **params)
    check(device, "max_pool2d_indices", [x], **params)
    check(device, "max_pool2d_grad", [rng.uniform(-1, 1, _pooled("max_pool2d", x, params).shape), x], **params)


@pytest.mark.only_on("wgpu")
def test_windows_of_more_elements_than_a_loop_has_iterations(device: Any) -> None:
    forced = device.with_quirk(loop_limit=1 << 10)
    params = {"kernel": (20, 60), "stride": (20, 60), "padding": (0, 0), "ceil_mode": False}
    spec, out = contiguous(dtypes.float32, (1, 1, 20, 60)), contiguous(dtypes.float32, (1, 1, 1, 1))
    average = params | {"count_include_pad": True, "divisor": None}
    declined = forced.backend.lower("avg_pool2d", (spec,), (out,), average)
    assert isinstance(declined, Declined)
    assert "1200 terms" in declined.reason
    assert not isinstance(
        forced.backend.lower("avg_pool2d_grad", (out,), (spec,), average | {"shape": spec.shape}), Declined
    )
