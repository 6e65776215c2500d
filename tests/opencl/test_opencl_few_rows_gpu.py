"""GPU kernels of products of few rows with a large matrix, in portable form on any device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from native_harness import Harness, as_gpu
from native_ops import EPSILON, check, upload

from polyhal.backends.common.codegen.elementwise import ExpressionStep
from polyhal.backends.common.problems import gemm, joined_gemm
from polyhal.backends.common.problems.gemm import Addend, Epilogue, Matrix, Product
from polyhal.backends.opencl import discovery
from polyhal.backends.opencl.backend import OpenCLBackend
from polyhal.backends.opencl_c.lowering.gemm import dispatch, few_rows, gemv
from polyhal.backends.opencl_c.lowering.gemm.few_rows import FewRows
from polyhal.backends.opencl_c.lowering.quantized import few_rows as quantized_few_rows
from polyhal.backends.opencl_c.lowering.quantized.few_rows import QuantizedFewRows
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.ops import OPS
from polyhal.hal.ops.linear_algebra.joined_linear import GATED
from polyhal.hal.ops.quantized.dequantize import sample_blocks

UNIT = {"float32": 2.0**-22, "float16": 2.0**-10, "bfloat16": 2.0**-7}
HALF, SINGLE = FewRows(2, 2, 1), FewRows(2, 1, 2)


@pytest.fixture(scope="module")
def device(any_device: discovery.OpenCLDevice) -> Harness:
    """Return one device that compiles quickly: the kernels are equal on all devices."""
    return Harness(OpenCLBackend(any_device))


@pytest.fixture(autouse=True)
def features_of_a_gpu(monkeypatch: pytest.MonkeyPatch, device: Any) -> None:
    features = as_gpu(device.backend.runtime.features, compute_units=4, static_local_memory=1 << 20)
    monkeypatch.setattr(device.backend.runtime, "features", features)


def draw(rng: Any, dtype: DType, transposed: bool, *shape: int) -> Any:
    values = rng.uniform(-1, 1, shape[:-2] + (shape[:-3:-1] if transposed else shape[-2:])).astype(dtype.numpy)
    return values.swapaxes(-1, -2) if transposed else values


def describe(refs: list[Any], out: Any) -> Product:
    p = gemm.describe(refs[0].spec, refs[1].spec, out.spec, (0, 1, None, len(refs), len(refs) + 1))
    assert isinstance(p, Product)
    return p


def multiply(device: Any, x: Any, y: Any, choice: FewRows, *, out_dtype: DType | None = None) -> Any:
    """Return x @ y; unwritten elements stay 77."""
    refs = [upload(device, a) for a in (x, y)]
    out = device.empty(out_dtype or refs[0].dtype, np.matmul(np.empty(x.shape, bool), np.empty(y.shape, bool)).shape)
    device.backend.fill(77, out)
    launch = few_rows.multiply(device.backend.runtime, describe(refs, out), choice)
    launch(*refs, out, *[device.backend.allocate(n) for n in launch.workspace])
    return device.download(out).astype(np.float64)


def assert_product(got: Any, x: Any, y: Any, dtype: DType) -> None:
    """Roundings of the sums, in units of the products' magnitudes, and of the result."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    bound = 4 * 2.0**-22 * (np.abs(x) @ np.abs(y)) + EPSILON[dtype.name] * np.abs(x @ y) + 1e-7
    assert (np.abs(got - x @ y) <= bound).all()


@pytest.mark.parametrize("transposed", [False, True], ids=["MN-major", "K-major"])
@pytest.mark.parametrize(
    ("dtype", "m", "n", "k", "choice"),
    [
        (dtypes.float16, 1, 72, 80, FewRows(1, 1, 4)),
        (dtypes.bfloat16, 5, 136, 264, FewRows(2, 2, 1)),
        (dtypes.float16, 19, 200, 88, FewRows(4, 4, 1)),
        (dtypes.bfloat16, 32, 72, 600, FewRows(8, 1, 2)),
        (dtypes.bfloat16, 3, 200, 512, FewRows(1, 1, 2, per_unit=1)),
        (dtypes.float16, 13, 136, 264, FewRows(1, 1, 1, per_unit=1)),
        (dtypes.float32, 1, 36, 76, FewRows(1, 1, 2)),
        (dtypes.float32, 3, 132, 520, FewRows(8, 1, 1)),
        (dtypes.float32, 16, 68, 1028, FewRows(2, 1, 4)),
        (dtypes.float32, 21, 68, 132, FewRows(4, 1, 1)),
    ],
    ids=str,
)
def test_edges_of_rows_columns_and_terms(
    device: Any, rng: Any, transposed: bool, dtype: DType, m: int, n: int, k: int, choice: FewRows
) -> None:
    x, y = draw(rng, dtype, False, m, k), draw(rng, dtype, transposed, k, n)
    assert_product(multiply(device, x, y, choice), x, y, dtype)


@pytest.mark.parametrize("transposed", [False, True], ids=["MN-major", "K-major"])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16], ids=str)
def test_splits_of_batches_with_few_columns(device: Any, rng: Any, dtype: DType, transposed: bool) -> None:
    """The few vectors are columns, so the product is computed transposed, also with terms split among groups."""
    x, y = draw(rng, dtype, not transposed, 2, 3, 72, 1032), draw(rng, dtype, True, 3, 1032, 7)
    choice = replace(SINGLE if dtype is dtypes.float32 else HALF, splits=2)
    refs = [upload(device, a) for a in (x, y)]
    p = describe(refs, device.empty(dtype, (2, 3, 72, 7)))
    assert few_rows.multiply(device.backend.runtime, p, choice).workspace
    assert_product(multiply(device, x, y, choice), x, y, dtype)


@pytest.mark.parametrize("splits", [1, 4])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16], ids=str)
def test_an_epilogue_with_a_residual_and_a_scale(device: Any, rng: Any, dtype: DType, splits: int) -> None:
    x, y = draw(rng, dtype, False, 3, 2048), draw(rng, dtype, True, 2048, 40)
    addend, factor = (rng.uniform(-2, 2, shape).astype(dtype.numpy) for shape in ((3, 40), (1,)))
    refs = [upload(device, a) for a in (x, y, addend, factor)]
    out = device.empty(dtype, (3, 40))
    p = describe(refs, out)
    operands = (Addend(replace(p.out, place=2), dtype), Addend(Matrix(3, 0, 0, (0, 0, 0)), dtype))
    steps = (ExpressionStep("multiply", (0, 2), dtypes.float32), ExpressionStep("add", (3, 1), dtypes.float32))
    choice = replace(SINGLE if dtype is dtypes.float32 else HALF, splits=splits)
    launch = few_rows.multiply(device.backend.runtime, replace(p, epilogue=Epilogue(steps, operands)), choice)
    assert bool(launch.workspace) is (splits > 1)
    launch(*refs, out, *[device.backend.allocate(n) for n in launch.workspace])
    x, y, addend, factor = (a.astype(np.float64) for a in (x, y, addend, factor))
    got = device.download(out).astype(np.float64)
    np.testing.assert_allclose(got, x @ y * factor + addend, rtol=EPSILON[dtype.name], atol=2048 * 2.0**-22)


def test_wide_sums_and_infinities(device: Any, rng: Any) -> None:
    x, y = draw(rng, dtypes.float16, False, 2, 96), draw(rng, dtypes.float16, True, 96, 40)
    x[1, 3] = np.inf
    got = multiply(device, x, y, HALF, out_dtype=dtypes.float32)
    assert_product(got[:1], x[:1], y, dtypes.float32)
    np.testing.assert_array_equal(got[1], np.sign(y[3].astype(np.float64)) * np.inf)


def product(dtype: DType, m: int, n: int, k: int, *, k_major: bool = True, aligned: bool = True) -> Product:
    right = Spec(dtype, (k, n), (1, k) if k_major else (n, 1), aligned)
    p = gemm.describe(Spec(dtype, (m, k), (k, 1), True), right, Spec(dtype, (m, n), (n, 1), True), (0, 1, None, 2, 3))
    assert isinstance(p, Product)
    return p


def test_the_kernels_are_chosen_for_large_aligned_matrices(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = device.backend.runtime
    h200 = as_gpu(runtime.features, compute_units=132, compute_capability=90)
    monkeypatch.setattr(runtime, "features", h200)
    half, single = dtypes.bfloat16, dtypes.float32
    assert all(few_rows.suits(runtime, product(half, m, 4096, 4096)) for m in (1, 8, 32))
    assert all(few_rows.suits(runtime, product(single, m, 4096, 4096, k_major=False)) for m in (1, 8, 16))
    assert few_rows.suits(runtime, product(half, 4096, 4, 4096, k_major=True))
    assert not few_rows.suits(runtime, product(half, 33, 4096, 4096))
    assert not few_rows.suits(runtime, product(single, 17, 4096, 4096))
    assert not few_rows.suits(runtime, product(half, 1, 512, 512))
    assert not few_rows.suits(runtime, product(half, 1, 65536, 128))
    assert not few_rows.suits(runtime, product(half, 1, 4096, 4100))
    assert not few_rows.suits(runtime, product(half, 1, 4100, 4096, k_major=False))
    assert not few_rows.suits(runtime, product(half, 1, 4096, 4096, aligned=False))
    monkeypatch.setattr(runtime, "features", replace(h200, compute_capability=0))
    assert not few_rows.suits(runtime, product(half, 1, 4096, 4096))
    monkeypatch.setattr(runtime, "features", replace(h200, cpu=True))
    assert not few_rows.suits(runtime, product(half, 1, 4096, 4096))


def test_every_compute_unit_reads_a_part(device: Any) -> None:
    """The predicted time is within a third of the matrix's read, and four microseconds for the reduction of a split."""
    features = as_gpu(device.backend.runtime.features, compute_units=132, compute_capability=90)
    for dtype, rows in ((dtypes.bfloat16, (1, 2, 4, 8, 16)), (dtypes.float32, (1, 2, 4, 8))):
        for m in rows:
            for n, k in ((14336, 4096), (4096, 14336), (32000, 2048)):
                for k_major in (False, True):
                    p = product(dtype, m, n, k, k_major=k_major)
                    choice = few_rows.predicted(features, p)
                    split = few_rows._split(features, p, choice)
                    assert few_rows._step(p, choice) <= split.terms
                    read = n * k * dtype.itemsize / 4000
                    assert few_rows._time(features, p, choice, split) < 1.4 * read + 6000
    near = few_rows.predicted(features, product(dtypes.bfloat16, 1, 11264, 2048), slack=0.04)
    assert near.across == 1  # half of the columns, for 3 % more time
    assert few_rows.predicted(features, product(dtypes.bfloat16, 1, 2048, 2048)).unroll == 8  # all terms in flight
    for m in (8, 16):  # a group of small blocks reads its rows once, as one of large blocks does
        assert few_rows.predicted(features, product(dtypes.bfloat16, m, 14336, 4096)) == FewRows(1, 1, 8, per_unit=1)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the kernels with the predicted division, as if they had been measured to be faster."""

    def predicted(runtime: Any, p: Product) -> FewRows:
        return few_rows.predicted(runtime.features, few_rows._with_few_rows(p))

    monkeypatch.setattr(few_rows, "choose", predicted)


def test_kernels_are_used_after_a_measurement(device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = draw(rng, dtypes.float32, False, 2, 1024), draw(rng, dtypes.float32, True, 1024, 260)
    runtime, out = device.backend.runtime, device.empty(dtypes.float32, (2, 260))
    p = describe([upload(device, a) for a in (x, y)], out)
    requests: dict[Any, Any] = {}
    monkeypatch.setattr(runtime.tuning, "requests", requests)
    assert "few_rows" not in dispatch.build(runtime, p).name
    ((key, request),) = ((k, r) for k, r in requests.items() if r.family is few_rows.FAMILY)
    assert all(values.get("across") for values in request.family.candidates(runtime.features, request.default))
    monkeypatch.setattr(runtime.tuning, "trial", {key: {"across": 4}})
    assert "few_rows" in dispatch.build(runtime, p).name


@pytest.mark.usefixtures("used")
def test_dispatch_multiplies_by_the_chosen_kernel(device: Any, rng: Any) -> None:
    x, y = draw(rng, dtypes.float32, False, 2, 1024), draw(rng, dtypes.float32, True, 1024, 260)
    refs = [upload(device, a) for a in (x, y)]
    out = device.empty(dtypes.float32, (2, 260))
    launch = dispatch.build(device.backend.runtime, describe(refs, out))
    assert "few_rows" in launch.name
    launch(*refs, out, *[device.backend.allocate(n) for n in launch.workspace])
    assert_product(device.download(out).astype(np.float64), x, y, dtypes.float32)


@pytest.mark.usefixtures("used")
@pytest.mark.parametrize("rows", [(1,), (2, 3)], ids=str)
def test_a_fused_linear_layer_of_few_rows(device: Any, rng: Any, rows: tuple[int, ...]) -> None:
    x, weight, bias = (rng.uniform(-1, 1, shape) for shape in ((*rows, 512), (520, 512), (520,)))
    residual = rng.uniform(-1, 1, (*rows, 520))
    check(device, "fused_linear", [x, weight, bias, residual], ulps=64, activation="gelu", scale=0.5)


@pytest.mark.parametrize("choice", [None, FewRows(1, 1, 4), FewRows(2, 1, 1, per_unit=1)], ids=str)
@pytest.mark.parametrize(
    ("dtype", "m", "k", "columns", "eps"),
    [
        (dtypes.bfloat16, 1, 520, (128, 64, 64), 1e-5),
        (dtypes.float16, 3, 264, (72, 72), 1e-5),
        (dtypes.float16, 2, 264, (72, 72), None),
        (dtypes.bfloat16, 4, 264, (40,), 1e-5),
    ],
    ids=str,
)
def test_joined_products(
    device: Any, rng: Any, choice: Any, dtype: DType, m: int, k: int, columns: Any, eps: Any
) -> None:
    """Several matrices, pairs with a gate, and a norm, by kernels of tensor cores and of vectors (None)."""
    arrays = [rng.uniform(-1, 1, (m, k)), *(rng.uniform(-1, 1, (n, k)) for n in columns)]
    arrays += [] if eps is None else [rng.uniform(0.5, 1.5, k)]
    arrays = [x.astype(dtype.numpy) for x in arrays]
    steps = GATED if len(columns) == 2 else ()
    params = {"eps": eps, "steps": steps, "out_dtype": None, "format": None}
    refs = [upload(device, x) for x in arrays]
    out = device.empty(dtype, (m, sum(columns) // (2 if steps else 1)))
    device.backend.fill(77, out)
    builder = joined_gemm.lowering(
        gemv.build if choice is None else lambda runtime, p: few_rows.multiply(runtime, p, choice),
        quantized_few_rows.build,
    )
    launch = builder(device.backend.runtime, tuple(r.spec for r in refs), (out.spec,), params)
    launch(*refs, out)
    x, *weights = (a.astype(np.float64) for a in arrays)
    expected = OPS["joined_linear"].reference(x, *weights, eps=eps, steps=steps)
    # Each term is rounded twice, each result once; a gate multiplies two sums of magnitude up to sqrt(k).
    size = np.sqrt(k) * (np.sqrt(k) if steps else 1)
    got = device.download(out).astype(np.float64)
    np.testing.assert_allclose(got, expected, rtol=4 * UNIT[dtype.name], atol=4 * UNIT[dtype.name] * size / np.sqrt(12))


@pytest.mark.parametrize(
    ("dtype", "form", "m", "columns", "eps", "choice"),
    [
        (dtypes.bfloat16, "q4_0", 1, (48, 16, 16), 1e-5, QuantizedFewRows(3, 2, 2)),
        (dtypes.float16, "q4_k", 5, (32, 32), 1e-5, QuantizedFewRows(2, 1, 1)),
        (dtypes.bfloat16, "q6_k", 19, (32, 32), None, QuantizedFewRows(3, 1, 2)),
        (dtypes.float16, "iq4_nl", 8, (32,), 1e-5, QuantizedFewRows(1, 3, 4)),
    ],
    ids=str,
)
def test_joined_products_with_quantised_weights(
    device: Any, rng: Any, dtype: DType, form: str, m: int, columns: Any, eps: Any, choice: QuantizedFewRows
) -> None:
    """Several matrices of blocks, pairs with a gate, and a norm; warps without terms or tiles."""
    k = 256
    x, scale = rng.uniform(-1, 1, (m, k)).astype(dtype.numpy), rng.uniform(0.5, 1.5, k).astype(dtype.numpy)
    blocks = [sample_blocks(rng, form, n, k, True) for n in columns]
    norm = [] if eps is None else [scale]
    steps = GATED if len(columns) == 2 else ()
    params = {"eps": eps, "steps": steps, "out_dtype": None, "format": form}
    refs = [upload(device, a) for a in (x, *blocks, *norm)]
    out = device.empty(dtype, (m, sum(columns) // (2 if steps else 1)))
    device.backend.fill(77, out)
    lower = joined_gemm.lowering(
        gemv.build, lambda runtime, p, form: quantized_few_rows.multiply(runtime, p, form, choice)
    )
    launch = lower(device.backend.runtime, tuple(r.spec for r in refs), (out.spec,), params)
    launch(*refs, out)
    expected = OPS["joined_linear"].reference(
        x.astype(np.float64), *blocks, *(a.astype(np.float64) for a in norm), eps=eps, steps=steps, format=form
    )
    # Terms of a normed x are rounded once more, to unit / 2 of numbers up to 2; weights of a row have a norm of about 1. A gate
    # multiplies two such sums.
    got, unit = device.download(out).astype(np.float64), UNIT[dtype.name]
    np.testing.assert_allclose(got, expected, rtol=4 * unit, atol=8 * unit)
