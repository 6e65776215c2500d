"""GPU kernels for data movement, indexing and fused groups, on any available device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_harness import as_gpu
from native_ops import check, run, upload

from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.hal import dtypes
from polyhal.hal.core.settings.state import settings
from polyhal.hal.ops.pointwise.fused_elementwise import GroupStep

SCALED: tuple[GroupStep, ...] = (("multiply", (0, 1), ()), ("add", (3, 2), ()), ("tanh", (4,), ()))


@pytest.fixture
def gpu(device: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the device with a GPU's features, as far as they choose among portable kernels."""
    runtime = device.backend.runtime
    if runtime.features.group_size < 64 and int(runtime.device.max_work_group_size) < 256:
        pytest.skip("groups of 256 work-items do not fit")
    found = as_gpu(runtime.features, group_size=256, vector_width=4, compute_units=4)
    monkeypatch.setattr(runtime, "features", found)
    return device


@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
@pytest.mark.parametrize("shape", [(1, 132, 68), (3, 64, 200), (1, 65, 67)], ids=str)
def test_transposition(gpu: Any, rng: Any, shape: tuple[int, ...], dtype: type) -> None:
    array = (rng.random(shape) * 1000).astype(dtype)
    source = upload(gpu, array.transpose(0, 2, 1))
    out = gpu.empty(source.dtype, source.shape)
    launch = copy.copy(gpu.backend.runtime, source.spec, out.spec)
    assert launch.name.startswith("pointwise_transpose_")
    launch(source, out)
    np.testing.assert_array_equal(gpu.download(out), array.transpose(0, 2, 1))


@pytest.mark.parametrize(("width", "dtype"), [(64, dtypes.float32), (24, dtypes.float16), (7, dtypes.float32)])
def test_rows_move_in_the_widest_elements_that_fit(gpu: Any, rng: Any, width: int, dtype: dtypes.DType) -> None:
    table = rng.integers(-9, 9, (37, width)).astype(dtype.numpy)
    index = np.array([[3, 0, 36], [-1, 37, 36]])
    (out,) = run(gpu, "embedding", [table, index])
    inside = ((index >= 0) & (index < 37))[..., None]
    expected = np.where(inside, table[np.clip(index, 0, 36)].astype(np.float32), 0)
    np.testing.assert_array_equal(out.astype(np.float32), expected)


@pytest.mark.parametrize(("rows", "width", "count"), [(50, 40, 70), (3, 40, 5000), (9, 5, 600)])
@pytest.mark.parametrize("deterministic", [True, False])
def test_rows_are_added(
    gpu: Any,
    rng: Any,
    monkeypatch: pytest.MonkeyPatch,
    rows: int,
    width: int,
    count: int,
    deterministic: bool,
) -> None:
    monkeypatch.setattr(settings, "deterministic", deterministic)
    source = rng.standard_normal((count, width)).astype(np.float32)
    index = rng.integers(-1, rows + 1, count)
    # Skewed, so that chains are short and long.
    index[rng.random(count) < 0.5] = 0
    results = [run(gpu, "scatter_rows", [source, index], rows=rows)[0] for _ in range(3)]
    if deterministic:
        np.testing.assert_array_equal(results[0], results[1])
        np.testing.assert_array_equal(results[0], results[2])
    inside = (index >= 0) & (index < rows)
    expected = np.zeros((rows, width))
    np.add.at(expected, index[inside], source[inside].astype(np.float64))
    np.testing.assert_allclose(results[0], expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("p", [0.25])
def test_dropout_scales_what_it_keeps(gpu: Any, rng: Any, p: float) -> None:
    x = rng.uniform(1, 2, 4099).astype(np.float32)
    (out,) = run(gpu, "dropout", [x, 3, 5], p=p)
    kept = out != 0
    assert abs(kept.mean() - (1 - p)) < 0.05
    np.testing.assert_allclose(out[kept], x[kept] / (1 - p), rtol=1e-6)


@pytest.mark.parametrize("axes", [(1,), (0,), (0, 1)], ids=str)
def test_fused_reduction(gpu: Any, rng: Any, axes: tuple[int, ...]) -> None:
    shape = (33, 1280)
    arrays = [rng.uniform(-1, 1, shape), rng.uniform(-1, 1, shape[1]), rng.uniform(-1, 1, (shape[0], 1))]
    check(gpu, "fused_elementwise", arrays, ulps=64, steps=SCALED, results=(5,), reduction=("mean", axes, False))
