"""Matrix products of all shapes, strides, batches and dtypes, through every kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_ops import check, run

from polyhal.hal import dtypes

DTYPES = [dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.float64]
# Vectors, products below the packing threshold, few rows, few columns, edges of register tiles, blocks and local tiles,
# more than one pass over the terms, split sums, whole vectors.
SHAPES = [
    (1, 70, 65), (3, 100, 129), (65, 3, 70), (2, 2, 5000), (13, 33, 40), (70, 130, 40), (129, 65, 400), (100, 257, 900),
    (1, 70, 600), (3, 130, 520), (68, 72, 132), (4, 64, 1024),
]  # fmt: skip


def _draw(rng: Any, *shape: int) -> Any:
    return rng.uniform(-1, 1, shape)


def _ulps(terms: int, dtype: dtypes.DType = dtypes.float32, fixed: float = 8.0) -> float:
    """Return the error bound of a sum; sums of half precision are computed in single precision."""
    return fixed + (terms**0.5 if dtype.itemsize >= 4 else 0)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("transposed", ["nn", "nt", "tn", "tt"])
def test_transposed_views(device: Any, rng: Any, shape: tuple[int, int, int], transposed: str) -> None:
    m, n, k = shape
    x = _draw(rng, k, m).T if transposed[0] == "t" else _draw(rng, m, k)
    y = _draw(rng, n, k).T if transposed[1] == "t" else _draw(rng, k, n)
    check(device, "matmul", [x, y], ulps=_ulps(k))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", SHAPES[::2], ids=str)
def test_dtypes(device: Any, rng: Any, shape: tuple[int, int, int], dtype: dtypes.DType) -> None:
    m, n, k = shape
    check(device, "matmul", [_draw(rng, m, k), _draw(rng, k, n)], dtype, _ulps(k, dtype, 4))


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.int64, dtypes.int8, dtypes.uint8], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 33, 400), (70, 130, 40), (70, 44, 130)], ids=str)
def test_integers_wrap(device: Any, rng: Any, shape: tuple[int, int, int], dtype: dtypes.DType) -> None:
    m, n, k = shape
    x, y = (rng.integers(0, 100, s).astype(dtype.numpy) for s in ((m, k), (k, n)))
    (out,) = run(device, "matmul", [x, y])
    np.testing.assert_array_equal(out, (x.astype(np.int64) @ y.astype(np.int64)).astype(dtype.numpy))


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ((5, 20, 64), (64, 50)),
        ((2, 3, 40, 50), (50, 60)),
        ((2, 1, 40, 50), (3, 50, 60)),
        ((40, 50), (3, 50, 60)),
        ((7, 1, 30), (30, 40)),
        ((3, 2, 4, 5), (3, 2, 5, 4)),
        ((2, 1, 40, 50), (1, 5, 50, 60)),
    ],
)
def test_batches(device: Any, rng: Any, x: tuple[int, ...], y: tuple[int, ...]) -> None:
    check(device, "matmul", [_draw(rng, *x), _draw(rng, *y)], ulps=16)


def test_heads_as_views(device: Any, rng: Any) -> None:
    """(batch, time, heads, features) viewed as (batch, heads, time, features), without a copy."""
    q, k = (_draw(rng, 2, 40, 3, 16) for _ in range(2))
    check(device, "matmul", [q.transpose(0, 2, 1, 3), k.transpose(0, 2, 3, 1)], ulps=16)


@pytest.mark.parametrize(("rows", "columns", "terms"), [(60, 70, 1024), (530, 5, 130)])
def test_rows_at_distances_of_a_power_of_two(device: Any, rng: Any, rows: int, columns: int, terms: int) -> None:
    check(device, "matmul", [_draw(rng, rows, terms), _draw(rng, terms, columns)], ulps=_ulps(terms))
    check(device, "matmul", [_draw(rng, columns, 1024).T[:rows], _draw(rng, columns, 40)], ulps=_ulps(columns))


def test_negative_and_wide_strides(device: Any, rng: Any) -> None:
    check(device, "matmul", [_draw(rng, 2, 50, 80)[:, ::-1, ::2], _draw(rng, 80, 70)[::-2, ::-1]], ulps=16)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize(
    ("lead", "inner", "outer"), [((), 64, 50), ((5,), 64, 2), ((5,), 700, 2), ((3, 20), 65, 50), ((130,), 700, 92)]
)
def test_linear(device: Any, rng: Any, lead: tuple[int, ...], inner: int, outer: int, dtype: dtypes.DType) -> None:
    x, weight, bias = _draw(rng, *lead, inner), _draw(rng, outer, inner), _draw(rng, outer)
    check(device, "linear", [x, weight, bias], dtype, _ulps(inner, dtype))
    check(device, "linear", [x, weight, None], dtype, _ulps(inner, dtype))


@pytest.mark.kernels_of("linear_weight_grad")
@pytest.mark.parametrize(("rows", "outer", "inner"), [(150, 70, 66), (140, 1024, 3)])
def test_the_bias_gradient_is_fused(device: Any, rng: Any, rows: int, outer: int, inner: int) -> None:
    """Columns of the gradient are read in place, or copied if their distance is a power of two."""
    operands = [_draw(rng, rows, outer), _draw(rng, rows, inner)]
    check(device, "linear_weight_grad", operands, ulps=_ulps(rows), out_dtype=None)


@pytest.mark.only_on("opencl")
@pytest.mark.kernels_of("fused_matmul")
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize(("rows", "inner", "columns"), [(1, 300, 70), (5, 64, 50), (130, 700, 92)])
def test_a_residual_in_float32(device: Any, rng: Any, rows: int, inner: int, columns: int, dtype: dtypes.DType) -> None:
    operands = [_draw(rng, rows, inner), _draw(rng, inner, columns), _draw(rng, columns)]
    steps = (("add", (0, 1), ()), ("add", (2, 3), ()))
    residual = _draw(rng, rows, columns).astype(np.float32)
    check(device, "fused_matmul", [*operands, residual], dtype, _ulps(inner), steps=steps, out_dtype=dtypes.float32)


# One case per kernel: row and column vectors, small products, register tiles in one pass and in several.
@pytest.mark.kernels_of("fused_linear")
@pytest.mark.parametrize(
    ("lead", "inner", "outer", "dtype"),
    [
        ((), 300, 70, dtypes.float32),
        ((5, 10), 300, 2, dtypes.float32),
        ((6,), 20, 30, dtypes.float32),
        ((2, 35), 65, 50, dtypes.float32),
        ((130,), 700, 90, dtypes.float32),
        ((130,), 700, 90, dtypes.bfloat16),
    ],
)
def test_epilogue(device: Any, rng: Any, lead: tuple[int, ...], inner: int, outer: int, dtype: dtypes.DType) -> None:
    inputs = [_draw(rng, *lead, inner), _draw(rng, outer, inner), _draw(rng, outer), _draw(rng, *lead, outer)]
    # wgpu declines long formulas on processors, whose drivers compile them slowly.
    chosen = {"activation": "relu" if device.uses_cpu_kernels else "gelu_tanh", "scale": 0.125}
    check(device, "fused_linear", inputs, dtype, _ulps(inner, dtype), magnitude=4, **chosen)


@pytest.mark.kernels_of("fused_linear")
def test_epilogue_with_only_a_residual(device: Any, rng: Any) -> None:
    inputs = [_draw(rng, 6, 20), _draw(rng, 30, 20), None, _draw(rng, 6, 30)]
    check(device, "fused_linear", inputs, ulps=16, magnitude=4)


@pytest.mark.only_on("opencl")
@pytest.mark.parametrize(
    ("dtype", "out", "shape"),
    [
        (dtypes.int8, dtypes.int32, (70, 90, 700)),
        (dtypes.uint8, dtypes.int32, (1, 33, 700)),
        (dtypes.float16, dtypes.float32, (70, 90, 700)),
        (dtypes.bfloat16, dtypes.float32, (40, 3, 700)),
        (dtypes.float32, dtypes.float64, (70, 90, 700)),
    ],
)
def test_results_wider_than_operands(
    device: Any, rng: Any, dtype: dtypes.DType, out: dtypes.DType, shape: tuple[int, int, int]
) -> None:
    if not device.stores(out):
        pytest.skip(f"the device does not store {out.name}")
    m, n, k = shape
    whole = dtype.kind != "float"
    x, y = (rng.integers(0, 100, s) % 3 if whole else _draw(rng, *s) for s in ((m, k), (k, n)))
    x, y = x.astype(dtype.numpy), y.T.astype(dtype.numpy).T
    (got,) = run(device, "matmul", [x, y], out_dtype=out)
    expected = x.astype(np.float64) @ y.astype(np.float64)
    assert got.dtype == out.numpy
    # Products of operands are exact in the type of the sums, which rounds once per term.
    limit = 0 if whole else np.finfo(out.numpy).eps * k**0.5 * np.abs(expected).max()
    np.testing.assert_allclose(got, expected, rtol=0, atol=limit)


def test_few_results_use_split_sums(device: Any, rng: Any) -> None:
    """The shape of a weight's gradient: few results, many terms; results are reproducible."""
    x, y = _draw(rng, 5000, 48).T, _draw(rng, 5000, 40)
    check(device, "matmul", [x, y], ulps=80)
    x, y = x.astype(np.float32), y.astype(np.float32)
    np.testing.assert_array_equal(run(device, "matmul", [x, y])[0], run(device, "matmul", [x, y])[0])


def test_a_product_of_more_terms_than_a_software_device_has_iterations_of_a_loop(device: Any) -> None:
    count = 1 << 21
    (out,) = run(device, "matmul", [np.ones((1, count), np.float32), np.ones((count, 1), np.float32)])
    assert out.item() == count


@pytest.mark.parametrize(("b", "m", "n", "k"), [(1, 1, 1, 1), (2, 5, 9, 7), (1, 33, 17, 64), (3, 16, 40, 1)])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.int32], ids=lambda d: d.name)
def test_contract_matmul(device: Any, rng: Any, b: int, m: int, n: int, k: int, dtype: dtypes.DType) -> None:
    x, y = rng.integers(-4, 5, (b, m, k)).astype(dtype.numpy), rng.integers(-4, 5, (b, k, n)).astype(dtype.numpy)
    out = device.empty(dtype, (b, m, n))
    device.backend.matmul(device.upload(x), device.upload(y), out)
    np.testing.assert_array_equal(
        device.download(out), (x.astype(np.float64) @ y.astype(np.float64)).astype(dtype.numpy)
    )
