"""Every elementwise expression against NumPy in float64, within the error bounds of OpenCL or of our own formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec

_ERF = np.vectorize(math.erf, otypes=[np.float64])
_SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40], np.float32)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + _ERF(x / math.sqrt(2)))


# (name, reference, low, high, allowed units in the last place, minimum magnitude at which they are counted)
# Units follow the OpenCL 1.2 specification, section 7.4, plus half a unit per further rounding.
UNARY: list[tuple[str, Callable[..., Any], float, float, float, float]] = [
    ("negative", np.negative, -9, 9, 0, 0),
    ("abs", np.abs, -9, 9, 0, 0),
    ("sign", np.sign, -9, 9, 0, 0),
    ("square", np.square, -9, 9, 0.5, 0),
    ("reciprocal", np.reciprocal, 0.1, 9, 2.5, 0),
    ("exp", np.exp, -80, 80, 3, 0),
    ("exp2", np.exp2, -80, 80, 3, 0),
    ("expm1", np.expm1, -9, 9, 3, 0),
    ("log", np.log, 1e-6, 9, 3, 0),
    ("log2", np.log2, 1e-6, 9, 3, 0),
    ("log10", np.log10, 1e-6, 9, 3, 0),
    ("log1p", np.log1p, -0.99, 9, 2, 0),
    ("sqrt", np.sqrt, 0, 9, 3, 0),
    ("rsqrt", lambda x: 1 / np.sqrt(x), 0.01, 9, 4, 0),
    ("sin", np.sin, -50, 50, 4, 0),
    ("cos", np.cos, -50, 50, 4, 0),
    ("tan", np.tan, -1.5, 1.5, 5, 0),
    ("asin", np.arcsin, -1, 1, 4, 0),
    ("acos", np.arccos, -1, 1, 4, 0),
    ("atan", np.arctan, -9, 9, 5, 0),
    ("sinh", np.sinh, -9, 9, 4, 0),
    ("cosh", np.cosh, -9, 9, 4, 0),
    ("tanh", np.tanh, -9, 9, 5, 0),
    ("erf", _ERF, -5, 5, 4, 0),
    ("floor", np.floor, -9, 9, 0, 0),
    ("ceil", np.ceil, -9, 9, 0, 0),
    ("trunc", np.trunc, -9, 9, 0, 0),
    ("round", np.round, -9, 9, 0, 0),
    ("relu", lambda x: np.maximum(x, 0), -9, 9, 0, 0),
    ("sigmoid", _sigmoid, -80, 80, 7, 0),
    ("silu", lambda x: x * _sigmoid(x), -80, 80, 7, 0),
    ("softplus", lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), -80, 80, 6, 0),
    # x/sqrt(2) is rounded, which moves the tail of the distribution by x * x times that relative error.
    ("gelu", _gelu, -5.5, 9, 13, 0.02),
]

BINARY: list[tuple[str, Callable[..., Any], float]] = [
    ("add", np.add, 0.5),
    ("subtract", np.subtract, 0.5),
    ("multiply", np.multiply, 0.5),
    ("divide", np.divide, 2.5),
    ("maximum", np.maximum, 0),
    ("minimum", np.minimum, 0),
    ("atan2", np.arctan2, 6),
    ("fmod", np.fmod, 0),
    ("remainder", np.remainder, 0.5),
]


def within(actual: np.ndarray, expected: np.ndarray, units: float, floor: float = 0.0) -> None:
    """Compare a float32 result with a float64 reference in units in the last place of the reference."""
    with np.errstate(over="ignore"):
        rounded = expected.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(rounded))
    finite = np.isfinite(rounded) & np.isfinite(actual)
    edge = ~finite & ~np.isnan(rounded)
    # Near the maximum float a result may round to it or to infinity.
    assert np.all((actual == rounded)[edge] | (np.abs(expected) > 3.4e38)[edge])
    unit = np.spacing(np.maximum(np.abs(rounded), np.float32(max(floor, 1.2e-38))).astype(np.float32))
    error = np.abs(actual.astype(np.float64)[finite] - expected[finite]) / unit[finite]
    worst = float(error.max(initial=0.0))
    assert worst <= units + 0.5, f"off by {worst} units in the last place; {units} + rounding allowed"


@pytest.mark.parametrize(
    ("op", "reference", "low", "high", "units", "floor"),
    # The bound of gelu holds for OpenCL's erf; the conformance kit has a wider bound for any device.
    [pytest.param(*row, id=row[0], marks=pytest.mark.only_on("opencl") if row[0] == "gelu" else ()) for row in UNARY],
)
def test_unary_float32(
    device: Any, rng: Any, op: str, reference: Any, low: float, high: float, units: float, floor: float
) -> None:
    uniform = rng.uniform(low, high, 4001)
    span = min(abs(high), abs(low)) or high
    small = np.logspace(-30, 0, 200) * span
    x = np.concatenate([uniform, small, -small[: 200 if low < 0 else 0]]).astype(np.float32)
    x = np.clip(x, low, high).astype(np.float32)
    x = np.concatenate([x, _SPECIAL]) if op not in ("tan", "softplus", "silu", "gelu") else x
    with np.errstate(all="ignore"):
        expected = np.asarray(reference(x.astype(np.float64)))
    params = {"approximate": "none"} if op == "gelu" else {}
    within(device.run(op, [device.upload(x)], dtypes.float32, x.shape, **params), expected, units, floor)


@pytest.mark.parametrize(("op", "reference", "units"), BINARY, ids=[b[0] for b in BINARY])
def test_binary_float32(device: Any, rng: Any, op: str, reference: Any, units: float) -> None:
    a = rng.uniform(-9, 9, 1003).astype(np.float32)
    b = rng.choice([-1, 1], 1003).astype(np.float32) * rng.uniform(0.5, 9, 1003).astype(np.float32)
    if op not in ("fmod", "remainder", "atan2"):
        grid = np.meshgrid(_SPECIAL, _SPECIAL)
        a, b = np.concatenate([a, grid[0].ravel()]), np.concatenate([b, grid[1].ravel()])
    with np.errstate(all="ignore"):
        expected = np.asarray(reference(a.astype(np.float64), b.astype(np.float64)))
    within(device.run(op, [device.upload(a), device.upload(b)], dtypes.float32, a.shape), expected, units)


def test_pow(device: Any, rng: Any) -> None:
    a, b = rng.uniform(0.01, 9, 1000).astype(np.float32), rng.uniform(-9, 9, 1000).astype(np.float32)
    expected = np.power(a.astype(np.float64), b.astype(np.float64))
    within(device.run("pow", [device.upload(a), device.upload(b)], dtypes.float32, a.shape), expected, 16)
    special = np.array([-2, -2, -2, 0, 0, np.inf, 1, np.nan], np.float32)
    power = np.array([2, 3, 0.5, 0, 2, -1, np.nan, 0], np.float32)
    with np.errstate(all="ignore"):
        expected = np.power(special.astype(np.float64), power.astype(np.float64))
    within(device.run("pow", [device.upload(special), device.upload(power)], dtypes.float32, (8,)), expected, 16)


@pytest.mark.parametrize("op", ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int64, dtypes.uint8], ids=lambda d: d.name)
def test_comparisons(device: Any, rng: Any, op: str, dtype: dtypes.DType) -> None:
    a, b = rng.integers(0, 4, 300).astype(dtype.numpy), rng.integers(0, 4, 300).astype(dtype.numpy)
    if dtype.kind == "float":
        a[::7], b[::5] = np.nan, np.inf
    expected = getattr(np, op)(a, b)
    np.testing.assert_array_equal(device.run(op, [device.upload(a), device.upload(b)], dtypes.bool_, a.shape), expected)


@pytest.mark.parametrize("op", ["isnan", "isinf", "isfinite"])
def test_classification(device: Any, op: str) -> None:
    x = np.concatenate([_SPECIAL, np.ones(20, np.float32)])
    np.testing.assert_array_equal(device.run(op, [device.upload(x)], dtypes.bool_, x.shape), getattr(np, op)(x))


@pytest.mark.parametrize("op", ["logical_and", "logical_or", "logical_xor"])
def test_logic_treats_all_non_zero_values_as_true(device: Any, op: str) -> None:
    a, b = np.array([0.0, 0.25, np.nan, -0.0] * 9, np.float32), np.array([0, 0, 256, 256] * 9, np.int64)
    expected = getattr(np, op)(a, b)
    np.testing.assert_array_equal(device.run(op, [device.upload(a), device.upload(b)], dtypes.bool_, a.shape), expected)
    np.testing.assert_array_equal(
        device.run("logical_not", [device.upload(a)], dtypes.bool_, a.shape), np.logical_not(a)
    )


INTEGER_OPS = ["add", "subtract", "multiply", "floor_divide", "remainder", "fmod", "maximum", "minimum",
               "bitwise_and", "bitwise_or", "bitwise_xor"]  # fmt: skip


@pytest.mark.parametrize(
    "dtype", [dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.int64, dtypes.uint64], ids=lambda d: d.name
)
def test_integers_wrap_and_never_trap(device: Any, rng: Any, dtype: dtypes.DType) -> None:
    info = np.iinfo(dtype.numpy)
    edges = np.array([info.min, info.max, 0, 1, 2, 3, 7, info.max - 1, info.min + 1], dtype.numpy)
    a, b = (g.ravel() for g in np.meshgrid(edges, edges))
    a = np.concatenate([a, rng.integers(info.min, info.max, 200, dtype.numpy)])
    b = np.concatenate([b, rng.integers(info.min, info.max, 200, dtype.numpy)])
    ra, rb = device.upload(a), device.upload(b)
    for op in INTEGER_OPS:
        with np.errstate(all="ignore"):
            expected = getattr(np, op)(a, b)
        np.testing.assert_array_equal(device.run(op, [ra, rb], dtype, a.shape), expected, err_msg=op)
    shift = rng.integers(0, dtype.bits + 9 if dtype.bits < 120 else 127, a.shape).astype(dtype.numpy)
    rs = device.upload(shift)
    for op in ("bitwise_left_shift", "bitwise_right_shift"):
        np.testing.assert_array_equal(device.run(op, [ra, rs], dtype, a.shape), getattr(np, op)(a, shift), err_msg=op)
    for op, reference in (("negative", np.negative), ("bitwise_invert", np.invert), ("abs", np.abs), ("sign", np.sign)):
        np.testing.assert_array_equal(device.run(op, [ra], dtype, a.shape), reference(a), err_msg=op)
    exponent = np.array([0, 1, 2, 5, 9] * 40, dtype.numpy)
    expected = np.power(a[:200], exponent)
    np.testing.assert_array_equal(
        device.run("pow", [device.upload(a[:200]), device.upload(exponent)], dtype, (200,)), expected
    )


@pytest.mark.only_on("opencl")
@pytest.mark.parametrize("special", [0.0, math.inf, math.nan, 5e-324, -2.0])
def test_elements_of_a_power_are_independent(device: Any, rng: Any, special: float) -> None:
    """Some drivers return wrong results for a vector with such an element."""
    for n in (1, 3, 16, 37):
        x = rng.uniform(0.1, 2, n)
        x[1::5] = special
        with np.errstate(over="ignore", under="ignore"):
            expected = x**2.0
        actual = device.run("pow", [device.upload(x), device.upload(np.full(n, 2.0))], dtypes.float64, (n,))
        np.testing.assert_allclose(actual, expected, rtol=16 * 2.0**-52, atol=0)  # 16 units: OpenCL 1.2, section 7.4


@pytest.mark.only_on("opencl")
def test_remainders_of_doubles_are_independent(device: Any, rng: Any) -> None:
    """Some drivers return wrong results for a vector with such a divisor, or with fewer numbers than elements."""
    for op in ("fmod", "remainder", "floor_divide"):
        for n, special in zip((1, 2, 3, 7, 16, 37), (0.0, math.inf, math.nan, 0.0, math.inf, math.nan), strict=True):
            x, y = rng.uniform(-3, 3, n), rng.choice([-1.0, 1.0], n) * rng.uniform(0.1, 2, n)
            x[2::5] = 40 * y[2::5]
            y[3::7] = special
            with np.errstate(all="ignore"):
                expected = getattr(np, op)(x, y)
            actual = device.run(op, [device.upload(x), device.upload(y)], dtypes.float64, (n,))
            np.testing.assert_array_equal(actual, expected, err_msg=f"{op} of {n} elements")


@pytest.mark.only_on("opencl", "wgpu")
def test_tanh_is_one_where_that_is_the_nearest_float(device: Any) -> None:
    """1 - tanh(x) is 2 exp(-2x), less than half a unit below 1 if x > 13 log(2), and the derivative 1 - tanh(x)^2 is 0."""
    edge = np.float32(13 * np.log(2) * (1 + 2.0**-23))
    size = np.concatenate([np.linspace(edge, 20, 1000), [100, 60000, 1e30, np.inf]]).astype(np.float32)
    x = np.concatenate([size, -size])
    y = device.run("tanh", [device.upload(x)], dtypes.float32, x.shape)
    np.testing.assert_array_equal(y, np.sign(x))
    np.testing.assert_array_equal(
        device.run("tanh_grad", [device.upload(np.ones_like(y)), device.upload(y)], dtypes.float32, x.shape), 0.0
    )
    special = np.array([np.nan, 0.0, -0.0, 9.0], np.float32)
    np.testing.assert_allclose(
        device.run("tanh", [device.upload(special)], dtypes.float32, (4,)), np.tanh(special), rtol=2.0**-21
    )


def test_contract_division_truncates(device: Any) -> None:
    a, b = np.array([7, -7, 7, -7, 5] * 5, np.int32), np.array([2, 2, -2, -2, 0] * 5, np.int32)
    out = device.empty(dtypes.int32, a.shape)
    device.backend.binary("div", device.upload(a), device.upload(b), out)
    np.testing.assert_array_equal(device.download(out), np.array([3, -3, -3, 3, 0] * 5))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
def test_half_precision_rounds_to_even(device: Any, rng: Any, dtype: dtypes.DType) -> None:
    a, b = rng.standard_normal(1001).astype(dtype.numpy), rng.standard_normal(1001).astype(dtype.numpy)
    a[:4] = [np.nan, np.inf, -np.inf, 0]
    b[:4] = [1, 1, 1, 1]
    expected = (a.astype(np.float32) * b.astype(np.float32)).astype(dtype.numpy)
    actual = device.run("multiply", [device.upload(a), device.upload(b)], dtype, a.shape)
    np.testing.assert_array_equal(actual.astype(np.float32), expected.astype(np.float32))
    large = np.array([65504.0, 65520.0, 3e38, 3.39e38, 1e-8, 6e-8, 1e-41] * 5, np.float32)
    with np.errstate(over="ignore"):
        expected = large.astype(dtype.numpy)
    actual = device.run("cast", [device.upload(large)], dtype, large.shape, dtype=dtype)
    np.testing.assert_array_equal(actual.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("stride", [1, 2])
def test_slices_of_half_precision_begin_anywhere(device: Any, rng: Any, dtype: dtypes.DType, stride: int) -> None:
    """Some drivers assume aligned vectors of halves, which may end the process."""
    n = 41
    g, y = rng.standard_normal(n + 1).astype(dtype.numpy), rng.standard_normal(stride * n).astype(dtype.numpy)
    slices = device.view(device.upload(g), (n,), (1,), 1), device.view(device.upload(y), (n,), (stride,))
    whole = device.upload(np.zeros(n + 1, dtype.numpy))
    out = device.view(whole, (n,), (1,), 1)
    for inputs, (a, b) in ((slices, (g[1:], y[::stride])), (slices[::-1], (y[::stride], g[1:]))):
        device.backend.lower("relu_grad", tuple(x.spec for x in inputs), (out.spec,), {})(*inputs, out)
        actual = device.download(whole)
        assert actual[0] == 0
        np.testing.assert_array_equal(actual[1:], np.where(b > 0, a, dtype.numpy.type(0)))


def test_mixed_dtypes_promote(device: Any, rng: Any) -> None:
    a, b = rng.integers(-50, 50, 100).astype(np.int16), rng.standard_normal(100).astype(np.float16)
    actual = device.run("add", [device.upload(a), device.upload(b)], dtypes.float16, a.shape)
    exact = a.astype(np.float64) + b.astype(np.float64)
    assert np.all(np.abs(actual - exact) <= 0.51 * np.spacing(np.abs(exact).astype(np.float16)))


def test_numbers_are_arguments(device: Any, rng: Any) -> None:
    x = rng.standard_normal(100).astype(np.float32)
    r = device.upload(x)
    np.testing.assert_array_equal(device.run("multiply", [r, 2.5], dtypes.float32, x.shape), x * np.float32(2.5))
    np.testing.assert_array_equal(device.run("subtract", [1, r], dtypes.float32, x.shape), 1 - x)
    assert np.all(np.isinf(device.run("multiply", [r, 1e300], dtypes.float32, x.shape)))


def test_parameters_are_arguments(device: Any) -> None:
    x = np.array([-2.0, -0.5, 0.0, 3.0] * 5, np.float32)
    r = device.upload(x)
    for slope in (0.01, 0.3):
        expected = np.where(x > 0, x, x * np.float32(slope))
        np.testing.assert_array_equal(
            device.run("leaky_relu", [r], dtypes.float32, x.shape, negative_slope=slope), expected
        )
    actual = device.run("elu", [r], dtypes.float32, x.shape, alpha=1.5)
    within(actual, np.where(x > 0, x, 1.5 * np.expm1(x.astype(np.float64))), 4)


def test_clip_and_where(device: Any) -> None:
    x = np.array([-3, -1, 0, 0.5, 2, np.nan] * 4, np.float32)
    r = device.upload(x)
    np.testing.assert_array_equal(device.run("clip", [r, -1.0, 1.0], dtypes.float32, x.shape), np.clip(x, -1, 1))
    np.testing.assert_array_equal(device.run("clip", [r, None, 1.0], dtypes.float32, x.shape), np.minimum(x, 1))
    np.testing.assert_array_equal(device.run("clip", [r, 0.25, None], dtypes.float32, x.shape), np.maximum(x, 0.25))
    cond = x > 0
    for d in (dtypes.float32, dtypes.int64, dtypes.uint8):
        a, b = np.arange(24).astype(d.numpy), np.arange(24)[::-1].astype(d.numpy)
        actual = device.run("where", [device.upload(cond), device.upload(a), device.upload(b)], d, (24,))
        np.testing.assert_array_equal(actual, np.where(cond, a, b))


@pytest.mark.parametrize(
    ("op", "slope"),
    [
        ("relu_grad", lambda y: y > 0),
        ("tanh_grad", lambda y: 1 - y * y),
        ("sigmoid_grad", lambda y: y * (1 - y)),
        ("silu_grad", lambda y: _sigmoid(y) * (1 + y * (1 - _sigmoid(y)))),
        ("gelu_grad", lambda y: 0.5 * (1 + _ERF(y / math.sqrt(2))) + y * np.exp(-y * y / 2) / math.sqrt(2 * math.pi)),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_gradients(device: Any, rng: Any, op: str, slope: Any) -> None:
    g, y = rng.standard_normal(500).astype(np.float32), rng.uniform(-4, 4, 500).astype(np.float32)
    params = {"approximate": "none"} if op == "gelu_grad" else {}
    actual = device.run(op, [device.upload(g), device.upload(y)], dtypes.float32, g.shape, **params)
    expected = g.astype(np.float64) * slope(y.astype(np.float64))
    # Sums of terms near 1, and of y * y near 16 in tanh_grad.
    np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=2e-6 * float(np.abs(g).max()) * 4)


def test_gelu_tanh(device: Any) -> None:
    x = np.linspace(-6, 6, 999, dtype=np.float32)
    wide = x.astype(np.float64)
    u = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
    actual = device.run("gelu", [device.upload(x)], dtypes.float32, x.shape, approximate="tanh")
    # exp(-2u) enters with |2u| units of relative error: at most 40 here, where the result is tiny.
    within(actual, 0.5 * wide * (1 + np.tanh(u)), 8, 0.05)


def test_float64(device: Any, rng: Any) -> None:
    if not device.stores(dtypes.float64):
        pytest.skip("the device does not store float64")
    x = rng.uniform(-3, 3, 300)
    r = device.upload(x)
    assert dtypes.as_dtype(x.dtype) is dtypes.float64
    for op, reference in (("exp", np.exp), ("erf", _ERF), ("tanh", np.tanh), ("sigmoid", _sigmoid)):
        np.testing.assert_allclose(device.run(op, [r], dtypes.float64, x.shape), reference(x), rtol=2e-15, err_msg=op)
    np.testing.assert_array_equal(device.run("multiply", [r, 0.1], dtypes.float64, x.shape), x * 0.1)
    np.testing.assert_array_equal(device.run("maximum", [r, 0.5], dtypes.float64, x.shape), np.maximum(x, 0.5))
    np.testing.assert_array_equal(device.run("less", [r, 0.5], dtypes.bool_, x.shape), x < 0.5)


@pytest.mark.parametrize("shape", [(35, 333), (2, 70001)], ids=str)
def test_rows_longer_and_shorter_than_a_span(device: Any, rng: Any, shape: tuple[int, ...]) -> None:
    """On CPUs a work-item takes many chunks, which begin and end at any position of a row."""
    x, row, column = (rng.standard_normal(s).astype(np.float32) for s in (shape, shape[-1:], (shape[0], 1)))
    held = device.upload(x)
    for other in (row, column):
        result = device.run("add", [held, device.upload(other)], dtypes.float32, shape)
        np.testing.assert_array_equal(result, x + other)


def test_result_may_be_an_input(device: Any, rng: Any) -> None:
    x = rng.standard_normal(1000).astype(np.float32)
    r = device.upload(x)
    launch = device.backend.lower("square", (r.spec,), (r.spec,), {})
    launch(r, r)
    np.testing.assert_array_equal(device.download(r), x * x)


def test_unsupported_calls_are_declined(device: Any) -> None:
    spec = Spec(dtypes.float32, (3,), (1,))
    answer = device.backend.lower("no_such_op", (spec,), (spec,), {})
    assert "no_such_op" in answer.reason


def test_bfloat16_is_ml_dtypes() -> None:
    assert dtypes.bfloat16.numpy == np.dtype(ml_dtypes.bfloat16)
