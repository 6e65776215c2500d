"""GPU kernel of batches of small products, in portable form on any device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from native_harness import Harness, as_gpu
from native_ops import EPSILON, upload

from polyhal.backends.common.codegen.elementwise import ExpressionStep
from polyhal.backends.common.problems import gemm
from polyhal.backends.common.problems.gemm import Addend, Epilogue, Product
from polyhal.backends.opencl import discovery
from polyhal.backends.opencl.backend import OpenCLBackend
from polyhal.backends.opencl_c.lowering.gemm import dispatch, small_matrices
from polyhal.backends.opencl_c.lowering.gemm.small_matrices import SmallTile
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType


@pytest.fixture(scope="module")
def device(any_device: discovery.OpenCLDevice) -> Harness:
    """Return one device that compiles quickly: the kernel is equal on all devices."""
    return Harness(OpenCLBackend(any_device))


@pytest.fixture(autouse=True)
def features_of_a_gpu(monkeypatch: pytest.MonkeyPatch, device: Any) -> None:
    features = as_gpu(device.backend.runtime.features, compute_units=4, static_local_memory=1 << 20)
    monkeypatch.setattr(device.backend.runtime, "features", features)


def draw(rng: Any, dtype: DType, transposed: bool, *shape: int) -> Any:
    values = rng.uniform(-1, 1, (*shape[:-2], *(shape[:-3:-1] if transposed else shape[-2:]))).astype(dtype.numpy)
    return values.swapaxes(-1, -2) if transposed else values


def describe(refs: list[Any], out: Any) -> Product:
    p = gemm.describe(refs[0].spec, refs[1].spec, out.spec, (0, 1, None, len(refs), len(refs) + 1))
    assert isinstance(p, Product)
    return p


@pytest.mark.parametrize(
    ("dtype", "batch", "m", "n", "k", "tile"),
    [
        (dtypes.float32, (9,), 16, 16, 16, SmallTile(16, 16, 1, 16, 128)),
        (dtypes.float32, (2, 3), 13, 9, 21, SmallTile(16, 16, 1, 8, 64)),
        (dtypes.float16, (5,), 33, 64, 40, SmallTile(64, 64, 2, 16, 128)),
        (dtypes.int32, (3,), 30, 12, 33, SmallTile(32, 16, 1, 32, 256)),
    ],
    ids=str,
)
def test_edges_of_products_and_of_the_batch(
    device: Any, rng: Any, dtype: DType, batch: tuple[int, ...], m: int, n: int, k: int, tile: SmallTile
) -> None:
    for a_turned, b_turned in ((False, False), (True, True)):
        x, y = draw(rng, dtypes.float32, a_turned, *batch, m, k), draw(rng, dtypes.float32, b_turned, batch[-1], k, n)
        if dtype is dtypes.int32:
            x, y = np.round(100 * x), np.round(100 * y)
        x, y = x.astype(dtype.numpy, order="K"), y.astype(dtype.numpy, order="K")
        refs, out = [upload(device, a) for a in (x, y)], device.empty(dtype, (*batch, m, n))
        device.backend.fill(77, out)
        small_matrices.multiply(device.backend.runtime, describe(refs, out), tile)(*refs, out)
        x, y = x.astype(np.float64), y.astype(np.float64)
        bound = (k + 1) * 2.0**-24 * (np.abs(x) @ np.abs(y)) + EPSILON.get(dtype.name, 0) * np.abs(x @ y)
        assert (np.abs(device.download(out).astype(np.float64) - x @ y) <= bound).all()


def test_an_epilogue_of_a_batch(device: Any, rng: Any) -> None:
    x, y, addend = (draw(rng, dtypes.float32, False, *shape) for shape in ((6, 10, 12), (6, 12, 8), (6, 10, 8)))
    refs, out = [upload(device, a) for a in (x, y, addend)], device.empty(dtypes.float32, (6, 10, 8))
    p = describe(refs, out)
    operand = Addend(replace(p.out, place=2), dtypes.float32)
    steps = (ExpressionStep("add", (0, 1), dtypes.float32),)
    p = replace(p, epilogue=Epilogue(steps, (operand,)))
    dispatch.build(device.backend.runtime, p)(*refs, out)
    np.testing.assert_allclose(device.download(out), x @ y + addend, rtol=1e-6, atol=12 * 2.0**-23)


def test_the_kernel_is_chosen_for_batches_that_occupy_the_device(device: Any) -> None:
    runtime = device.backend.runtime

    def name(count: int, m: int, n: int, k: int) -> str:
        refs = [device.empty(dtypes.float32, shape) for shape in ((count, m, k), (count, k, n), (count, m, n))]
        return dispatch.build(runtime, describe(refs[:2], refs[2])).name

    assert name(64, 16, 16, 16) == "gemm_small_matrices"
    assert name(8, 64, 40, 100) == "gemm_small_matrices"
    assert name(2, 64, 64, 64) != "gemm_small_matrices"
    assert name(8, 80, 80, 80) != "gemm_small_matrices"
