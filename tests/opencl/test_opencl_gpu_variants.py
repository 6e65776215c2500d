"""Kernels that only GPUs use, on any device: short columns, sums by bags, lists of tensors in vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_harness import as_gpu
from native_ops import check, run, upload
from optimizer_inputs import ADAM, FLAGS, tensors

from polyhal.hal.protocol import Declined


@pytest.fixture
def gpu(device: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the device, treated as a GPU."""
    runtime = device.backend.runtime
    most = runtime.features.max_group_size
    monkeypatch.setattr(runtime, "features", as_gpu(runtime.features, group_size=min(most, 64)))
    return device


@pytest.mark.parametrize(("shape", "axis"), [((128, 10), 0), ((3, 200, 70), 1), ((513, 6), 0)], ids=str)
def test_sums_of_short_columns(gpu: Any, rng: Any, shape: tuple[int, ...], axis: int) -> None:
    x = rng.standard_normal(shape).astype(np.float32)
    (actual,) = run(gpu, "sum", [x], axis=(axis,))
    np.testing.assert_allclose(actual, x.astype(np.float64).sum(axis), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("bags", "open_end"), [("length", False), ("starts", False), ("starts", True)])
def test_rows_added_by_bags(gpu: Any, rng: Any, bags: str, open_end: bool, scaled: bool) -> None:
    starts = None if bags == "length" else np.array([0, 1, 1, 8, 10])
    count = 4 + (starts is not None and open_end)
    index = rng.integers(-1, 7, 12)
    scales = rng.integers(1, 3, 12).astype(np.float32) if scaled else None
    params = {"rows": 6, "length": 3 if starts is None else 0, "open_end": open_end}
    rows = rng.integers(-9, 9, (count, 8)).astype(np.float32)
    check(gpu, "scatter_bags", [rows, index, starts, scales], ulps=0, **params)


@pytest.mark.parametrize("factor", [0.25, 1.0])
def test_gpus_take_aligned_tensors_in_vectors_and_others_one_by_one(gpu: Any, rng: Any, factor: float) -> None:
    bases = [rng.uniform(-1, 1, n).astype(np.float32) for n in (9001, 40, 5000, 3, 1)]
    views = [x[i % 2 :] for i, x in enumerate(bases)]
    check(gpu, "sum_of_squares", views, ulps=64)
    check(gpu, "norms", [*views, views[0][:0]], ulps=64)
    refs = [upload(gpu, x) for x in (*views, np.float32(factor)[None])]
    refs[-1] = gpu.view(refs[-1], (), (), 0)
    specs = tuple(r.spec for r in refs)
    assert not specs[1].aligned
    launch = gpu.backend.lower("scale_all", specs, specs[:-1], {})
    assert not isinstance(launch, Declined)
    launch(*refs, *refs[:-1])
    for ref, x in zip(refs, views, strict=False):
        np.testing.assert_array_equal(gpu.download(ref), x * np.float32(factor))


def test_adam_over_more_tensors_than_fit_in_a_launch(gpu: Any, rng: Any) -> None:
    xs = [*tensors(rng), *tensors(rng), *tensors(rng), *tensors(rng, 0.01), *ADAM]
    check(gpu, "adam_step", xs, ulps=16, **FLAGS)
