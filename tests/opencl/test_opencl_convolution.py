"""The strategies of convolutions on CPUs: tap planes, implicit products, columns, and Winograd; direct ones on GPUs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from conv_infinities import check_infinities
from native_harness import as_gpu
from native_ops import check, run

from polyhal.backends.common.problems.conv import Convolution, describe, geometry
from polyhal.backends.opencl_c.lowering.conv import (
    cpu_choice,
    cpu_implicit_gemm,
    cpu_weight_grad,
    cpu_weight_grad_columns,
    cpu_winograd,
)
from polyhal.hal import dtypes
from polyhal.hal.layout import contiguous
from polyhal.hal.ops import OPS
from polyhal.hal.ops.nn.window_shape import output_length

pytestmark = pytest.mark.slow

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
    ((1, 2, 1, 4), (6, 2, 1, 2), {"stride": (3, 1), "padding": (1, 0)}),
]


@pytest.fixture(autouse=True)
def weight_gradients_from_planes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Force weight gradients from tap planes; the other CPU kernel has separate tests."""
    monkeypatch.setattr(cpu_weight_grad_columns, "columns", lambda *_: None)


def _gradient_shape(x: tuple[int, ...], weight: tuple[int, ...], params: dict[str, Any]) -> tuple[int, ...]:
    axes = zip(x[2:], weight[2:], params["stride"], params["padding"], params["dilation"], strict=True)
    return (x[0], weight[0], *(output_length(*a) for a in axes))


def _skip_where_composed(device: Any, weight: tuple[int, ...], groups: int) -> None:
    if not device.backend.features.cpu and weight[0] // groups > 4:
        pytest.skip("this device composes convolution of windows and a product")


def _choose_columns(monkeypatch: pytest.MonkeyPatch, chosen: bool) -> None:
    """Force or forbid CPUs' matrix product over the columns of all images, if operands permit it."""
    for name in ("prefers_im2col_forward", "prefers_im2col_input_grad", "prefers_im2col_weight_grad"):
        monkeypatch.setattr(cpu_choice, name, lambda _, c: chosen and c.out.is_contiguous)


@pytest.fixture
def by_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make CPUs convolve image by image."""
    _choose_columns(monkeypatch, False)


@pytest.mark.usefixtures("by_image")
@pytest.mark.parametrize(("x", "weight", "more"), CASES)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.float64], ids=lambda d: d.name)
def test_convolution(
    device: Any,
    rng: Any,
    monkeypatch: pytest.MonkeyPatch,
    x: tuple[int, ...],
    weight: tuple[int, ...],
    more: dict[str, Any],
    dtype: dtypes.DType,
) -> None:
    """CPUs convolve tap planes, for any number of filters."""
    monkeypatch.setattr(cpu_implicit_gemm, "_MIN_ROWS", 1 << 30)
    params = DEFAULTS | more
    _skip_where_composed(device, weight, params["groups"])
    image, kernel, bias = rng.uniform(-1, 1, x), rng.uniform(-1, 1, weight), rng.uniform(-1, 1, weight[0])
    g = rng.uniform(-1, 1, _gradient_shape(x, weight, params))
    check(device, "conv2d", [image, kernel, bias], dtype, ulps=16, **params)
    check(device, "conv2d", [image, kernel, None], dtype, ulps=16, **params)
    check(device, "conv2d_input_grad", [g, kernel], dtype, ulps=16, shape=x, **params)
    check(device, "conv2d_weight_grad", [g, image], dtype, ulps=16, kernel=weight[2:], **params)


IMPLICIT: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    *CASES,
    # Whole tiles, also with taps outside the image; many passes; phases with several tiles, and without a tap.
    ((2, 26, 1, 210), (37, 26, 1, 5), {"padding": (0, 2)}),
    ((2, 33, 10, 13), (30, 33, 4, 4), {"stride": (2, 2), "padding": (1, 1)}),
    ((1, 9, 31, 30), (26, 9, 1, 1), {"stride": (2, 3)}),
    ((3, 4, 16, 40), (60, 2, 3, 3), {"groups": 2, "stride": (1, 2), "padding": (1, 1)}),
]


@pytest.mark.usefixtures("by_image")
@pytest.mark.parametrize("weights_bytes", [1 << 20, 1 << 10])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("case", range(len(IMPLICIT)))
def test_implicit_product(
    device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, case: int, dtype: dtypes.DType, weights_bytes: int
) -> None:
    """CPUs compute a matrix product in one or several blocks of filters."""
    monkeypatch.setattr(cpu_implicit_gemm, "_MIN_ROWS", 1)
    monkeypatch.setattr(cpu_implicit_gemm, "_MIN_ACROSS", 1)
    monkeypatch.setattr(cpu_implicit_gemm, "_WEIGHTS_BYTES", weights_bytes)
    monkeypatch.setattr(cpu_winograd, "is_faster", lambda *_: False)
    x, weight, more = IMPLICIT[case]
    params = DEFAULTS | more
    _skip_where_composed(device, weight, params["groups"])
    image, kernel, bias = rng.uniform(-1, 1, x), rng.uniform(-1, 1, weight), rng.uniform(-1, 1, weight[0])
    g = rng.uniform(-1, 1, _gradient_shape(x, weight, params))
    check(device, "conv2d", [image, kernel, bias], dtype, ulps=16, **params)
    check(device, "conv2d", [image[:, ::-1], kernel, None], dtype, ulps=16, **params)
    check(device, "conv2d_input_grad", [g, kernel], dtype, ulps=16, shape=x, **params)


COLUMNS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    *CASES,
    # Whole planes and rows as chunks of several widths, also with a stride of 2; windows outside the image.
    ((3, 5, 2, 2), (9, 5, 3, 3), {"padding": (1, 1)}),
    ((2, 6, 7, 7), (10, 6, 3, 3), {"padding": (1, 1)}),
    ((2, 4, 16, 16), (6, 2, 3, 3), {"groups": 2, "stride": (2, 2), "padding": (1, 1)}),
    ((2, 3, 10, 33), (5, 3, 3, 2), {"stride": (1, 2), "padding": (1, 0)}),
    ((1, 4, 6, 6), (3, 4, 2, 2), {"padding": (3, 3), "dilation": (2, 2)}),
]


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("case", range(len(COLUMNS)))
def test_columns_of_all_images(
    device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, case: int, dtype: dtypes.DType
) -> None:
    """CPUs compute one matrix product over the columns of all images."""
    _choose_columns(monkeypatch, True)
    monkeypatch.setattr(cpu_winograd, "is_faster", lambda *_: False)
    x, weight, more = COLUMNS[case]
    params = DEFAULTS | more
    _skip_where_composed(device, weight, params["groups"])
    image, kernel, bias = rng.uniform(-1, 1, x), rng.uniform(-1, 1, weight), rng.uniform(-1, 1, weight[0])
    g = rng.uniform(-1, 1, _gradient_shape(x, weight, params))
    check(device, "conv2d", [image, kernel, bias], dtype, ulps=16, **params)
    check(device, "conv2d", [image[:, :, ::-1], kernel, None], dtype, ulps=16, **params)
    check(device, "conv2d_input_grad", [g, kernel], dtype, ulps=16, shape=x, **params)
    check(device, "conv2d_weight_grad", [g, image], dtype, ulps=16, kernel=weight[2:], **params)


def test_choice_of_columns(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On two cores with AVX-512, columns suit ResNet-18 layers with small planes, and large weight gradients."""
    runtime = device.backend.runtime
    monkeypatch.setattr(runtime, "features", replace(runtime.features, vector_width=16, compute_units=2))

    def pay(x: tuple[int, ...], weight: tuple[int, ...], **more: Any) -> list[bool]:
        params = DEFAULTS | more
        images, weights, result = (
            contiguous(dtypes.float32, shape) for shape in (x, weight, _gradient_shape(x, weight, params))
        )
        found = []
        for op, prefers, operands in (
            ("conv2d", cpu_choice.prefers_im2col_forward, (images, weights, result)),
            ("conv2d_input_grad", cpu_choice.prefers_im2col_input_grad, (result, weights, images)),
            ("conv2d_weight_grad", cpu_choice.prefers_im2col_weight_grad, (result, images, weights)),
        ):
            c = describe(op, operands[:2], operands[2:], params)
            assert isinstance(c, Convolution)
            found.append(prefers(runtime, c))
        return found

    assert pay((8, 512, 2, 2), (512, 512, 3, 3), padding=(1, 1)) == [True] * 3
    assert pay((8, 256, 4, 4), (512, 256, 3, 3), padding=(1, 1), stride=(2, 2)) == [True] * 3
    assert pay((8, 512, 7, 7), (2048, 512, 1, 1)) == [True] * 3
    assert pay((2, 3, 224, 224), (64, 3, 7, 7), padding=(3, 3), stride=(2, 2)) == [False] * 3
    assert pay((4, 64, 56, 56), (64, 64, 1, 1)) == [False] * 3
    assert pay((128, 16, 8, 8), (32, 16, 3, 3), padding=(1, 1)) == [False] * 3


def _shorter(chosen: Any, length: int, *shape: Any) -> cpu_weight_grad.WeightTile:
    return replace(chosen(*shape), chunk=length)


@pytest.mark.usefixtures("by_image")
def test_weight_gradient_in_chunks(device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are rows of an image, or several small images."""
    _skip_where_composed(device, (10, 6), 1)
    chosen = cpu_weight_grad.weight_tile
    for length, x in ((32, (3, 6, 12, 12)), (64, (7, 6, 3, 3))):
        monkeypatch.setattr(cpu_weight_grad, "weight_tile", partial(_shorter, chosen, length))
        params = DEFAULTS | {"padding": (1, 1)}
        g = rng.uniform(-1, 1, _gradient_shape(x, (10, 6, 3, 3), params))
        check(device, "conv2d_weight_grad", [g, rng.uniform(-1, 1, x)], ulps=32, kernel=(3, 3), **params)


CACHED: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((11, 5, 8, 8), (18, 5, 3, 3), {"padding": (1, 1)}),
    ((9, 4, 5, 7), (10, 4, 3, 2), {"padding": (2, 1), "dilation": (1, 2)}),
    ((9, 4, 6, 9), (12, 2, 3, 3), {"groups": 2, "stride": (2, 1), "padding": (0, 1)}),
    ((9, 3, 9, 9), (8, 3, 2, 3), {"stride": (2, 2), "padding": (1, 1)}),
]


@pytest.mark.usefixtures("by_image")
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("case", range(len(CACHED)))
def test_many_small_images(device: Any, rng: Any, monkeypatch: Any, case: int, dtype: dtypes.DType) -> None:
    """Work-items pack their images themselves, one or a few at a time, with and without gaps between rows."""
    x, weight, more = CACHED[case]
    params = DEFAULTS | more
    _skip_where_composed(device, weight, params["groups"])
    runtime = device.backend.runtime
    monkeypatch.setattr(runtime, "features", replace(runtime.features, compute_units=2))
    chosen = cpu_weight_grad.weight_tile
    monkeypatch.setattr(cpu_weight_grad, "weight_tile", partial(_shorter, chosen, 256))
    monkeypatch.setattr(cpu_implicit_gemm, "_MIN_ROWS", 1 << 30)
    image, kernel, bias = rng.uniform(-1, 1, x), rng.uniform(-1, 1, weight), rng.uniform(-1, 1, weight[0])
    g = rng.uniform(-1, 1, _gradient_shape(x, weight, params))
    check(device, "conv2d", [image, kernel, bias], dtype, ulps=16, **params)
    check(device, "conv2d_input_grad", [g, kernel], dtype, ulps=16, shape=x, **params)
    check(device, "conv2d_weight_grad", [g, image], dtype, ulps=16, kernel=weight[2:], **params)


@pytest.mark.parametrize("case", [3, 4])
def test_few_filters_on_a_gpu(device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, case: int) -> None:
    """Direct convolution runs on any device."""
    runtime = device.backend.runtime
    monkeypatch.setattr(runtime, "features", as_gpu(runtime.features))
    x, weight, more = CASES[case]
    params = DEFAULTS | more
    image, kernel = rng.uniform(-1, 1, x), rng.uniform(-1, 1, weight)
    g = rng.uniform(-1, 1, _gradient_shape(x, weight, params))
    check(device, "conv2d", [image, kernel, rng.uniform(-1, 1, weight[0])], ulps=16, **params)
    check(device, "conv2d_input_grad", [g, kernel], ulps=16, shape=x, **params)
    check(device, "conv2d_weight_grad", [g, image], ulps=16, kernel=weight[2:], **params)


@pytest.mark.usefixtures("by_image")
@pytest.mark.parametrize("min_rows", [1, 1 << 30])
@pytest.mark.parametrize("width", [4, 8])
def test_narrow_registers(device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, width: int, min_rows: int) -> None:
    """Tiles are those for processors without AVX-512."""
    monkeypatch.setattr(cpu_implicit_gemm, "_MIN_ROWS", min_rows)
    _skip_where_composed(device, (10, 6), 1)
    runtime = device.backend.runtime
    monkeypatch.setattr(runtime, "features", replace(runtime.features, vector_width=width))
    x, weight, params = (2, 6, 9, 12), (10, 6, 3, 3), DEFAULTS | {"padding": (1, 1), "stride": (1, 2)}
    image, kernel = rng.uniform(-1, 1, x), rng.uniform(-1, 1, weight)
    g = rng.uniform(-1, 1, _gradient_shape(x, weight, params))
    check(device, "conv2d", [image, kernel, rng.uniform(-1, 1, 10)], ulps=16, **params)
    check(device, "conv2d_input_grad", [g, kernel], ulps=16, shape=x, **params)
    check(device, "conv2d_weight_grad", [g, image], ulps=16, kernel=weight[2:], **params)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize(("padding", "width"), [((0, 0), 8), ((1, 1), 16), ((0, 3), 4)])
def test_winograd(
    device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, padding: tuple[int, int], width: int, dtype: dtypes.DType
) -> None:
    """Cases have complete and partial tiles of 2 by 2 results, groups, partly filled panels, and any padding."""
    _skip_where_composed(device, (36, 16), 2)
    runtime = device.backend.runtime
    monkeypatch.setattr(runtime, "features", replace(runtime.features, vector_width=width))
    monkeypatch.setattr(cpu_winograd, "is_faster", lambda *_: True)
    x, weight, params = (2, 32, 9, 12), (36, 16, 3, 3), DEFAULTS | {"padding": padding, "groups": 2}
    image, kernel, bias = rng.uniform(-1, 1, x), rng.uniform(-1, 1, weight), rng.uniform(-1, 1, 36)
    g = rng.uniform(-1, 1, _gradient_shape(x, weight, params))
    check(device, "conv2d", [image, kernel, bias], dtype, ulps=16, **params)
    check(device, "conv2d_input_grad", [g, kernel], dtype, ulps=16, shape=x, **params)


@pytest.mark.parametrize("padding", [(0, 0), (1, 1), (0, 3)])
def test_infinities_in_winograd_only_reach_results_of_their_windows(
    device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, padding: tuple[int, int]
) -> None:
    _skip_where_composed(device, (36, 16), 2)
    monkeypatch.setattr(cpu_winograd, "is_faster", lambda *_: True)
    x, weight, params = (2, 32, 9, 12), (36, 16, 3, 3), DEFAULTS | {"padding": padding, "groups": 2}
    check_infinities(device, rng, x, weight, params, np.float32)
    image, kernel, bias = rng.uniform(-1, 1, x), rng.uniform(0.5, 1, weight), rng.uniform(-1, 1, 36)
    for at, value in (((0, 3, 4, 4), np.inf), ((1, 20, 0, 11), np.nan), ((1, 9, 8, 3), -np.inf)):
        image[at] = value
    expected = OPS["conv2d"].reference(image, kernel, bias, **params)
    (got,) = run(device, "conv2d", [a.astype(np.float32) for a in (image, kernel, bias)], **params)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_winograd_is_as_accurate(device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its larger intermediate values are offset by shorter sums: at most twice the error of the plain kernel."""
    _skip_where_composed(device, (64, 64), 1)
    image, kernel = rng.uniform(-1, 1, (1, 80, 12, 12)), rng.uniform(-1, 1, (64, 80, 3, 3))
    params = DEFAULTS | {"padding": (1, 1)}
    want = OPS["conv2d"].reference(
        image.astype(np.float32).astype(float), kernel.astype(np.float32).astype(float), **params
    )
    errors = []
    for pays in (False, True):
        monkeypatch.setattr(cpu_winograd, "is_faster", lambda *_, pays=pays: pays)
        (got,) = run(device, "conv2d", [image.astype(np.float32), kernel.astype(np.float32), None], **params)
        errors.append(float(np.sqrt(np.mean((got - want) ** 2))))
    assert errors[1] < 2 * errors[0]


@pytest.mark.parametrize("width", [8, 16])
def test_choice_of_winograd(device: Any, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """The choice on two cores with AVX2 or AVX-512."""
    runtime = device.backend.runtime
    monkeypatch.setattr(runtime, "features", replace(runtime.features, vector_width=width, compute_units=2))
    x, out = contiguous(dtypes.float32, (4, 64, 56, 56)), contiguous(dtypes.float32, (4, 64, 56, 56))

    def is_faster(weight: tuple[int, ...], **more: Any) -> bool:
        return cpu_winograd.is_faster(runtime, geometry(x.shape, weight, out.shape, DEFAULTS | more), out)

    assert is_faster((64, 64, 3, 3), padding=(1, 1))
    assert not is_faster((64, 64, 3, 3), padding=(2, 2), dilation=(2, 2))
    assert not is_faster((64, 64, 5, 5), padding=(2, 2))
    assert not is_faster((64, 1, 3, 3), padding=(1, 1), groups=64)
    assert not is_faster((4096, 4096, 3, 3), padding=(1, 1))


KINDS = ["planes", "product", "columns", "gpu"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", [1, 2, 3, 4, 6, 8])
def test_infinite_gradients_only_reach_pixels_under_their_kernels(
    device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch, case: int, kind: str
) -> None:
    x, weight, more = CASES[case]
    params = DEFAULTS | more
    runtime = device.backend.runtime
    if kind == "gpu":
        monkeypatch.setattr(runtime, "features", as_gpu(runtime.features))
    else:
        _skip_where_composed(device, weight, params["groups"])
        monkeypatch.setattr(cpu_winograd, "is_faster", lambda *_: False)
        monkeypatch.setattr(cpu_implicit_gemm, "_MIN_ROWS", 1 << 30 if kind == "planes" else 1)
        monkeypatch.setattr(cpu_implicit_gemm, "_MIN_ACROSS", 1)
        _choose_columns(monkeypatch, kind == "columns")
    check_infinities(device, rng, x, weight, params, np.float32)
