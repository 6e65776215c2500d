"""Steps over more tensors than fit in a launch, in place and out of place, with gradients of any layout."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from native_harness import as_gpu
from native_ops import check, lower, run, upload
from optimizer_cases import (
    ADAM,
    FLAGS,
    SHAPES,
    tensors,
    test_adam_in_place,
    test_adam_keeps_half_precision_parameters_beside_single_precision_state,
    test_gradient_scaling,
    test_gradients_may_be_views,
    test_sgd_with_momentum,
    test_the_reference_is_adam_as_published,
)

from polyhal.backends.opencl import language
from polyhal.hal import dtypes
from polyhal.hal.protocol import Declined

__all__ = [
    "test_adam_in_place",
    "test_adam_keeps_half_precision_parameters_beside_single_precision_state",
    "test_gradient_scaling",
    "test_gradients_may_be_views",
    "test_sgd_with_momentum",
    "test_the_reference_is_adam_as_published",
]


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("decoupled", [False, True])
def test_adam(device: Any, rng: Any, decoupled: bool, dtype: dtypes.DType) -> None:
    xs = [*tensors(rng), *tensors(rng), *tensors(rng), *tensors(rng, 0.01), *ADAM]
    check(device, "adam_step", xs, dtype, ulps=16, **{**FLAGS, "decoupled": decoupled})


@pytest.fixture
def gpu(device: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the device, treated as a GPU."""
    runtime = device.backend.runtime
    most = runtime.features.max_group_size
    monkeypatch.setattr(runtime, "features", as_gpu(runtime.features, group_size=min(most, 64)))
    return device


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_compilers_that_assume_finite_numbers_keep_the_check_of_gradients(
    device: Any, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some drivers fold x * 0 and comparisons with infinity by default. The non-finite element is last, or inside a vector.

    Halves are excluded: such a compiler may assume that converted halves are finite, and fold the test of their bits.
    """
    monkeypatch.setattr(language, "_BASE_OPTIONS", (*language._BASE_OPTIONS, "-cl-fast-relaxed-math"))
    kind = dtypes.as_dtype(dtype)
    if kind not in device.backend.capabilities.storage:
        pytest.skip(f"the device has no {dtype}")
    fresh = device.with_quirk()
    for value, place in itertools.product((1.0, np.inf, -np.inf, np.nan), (5, 1000)):
        x = np.ones(1001)
        x[place] = value
        refs = [fresh.upload(x, kind), fresh.view(fresh.upload([0.5], dtypes.float32), (), ())]
        out, flag = fresh.empty(kind, x.shape), fresh.empty(dtypes.float32, ())
        launch = fresh.backend.lower("unscale_all", tuple(r.spec for r in refs), (out.spec, flag.spec), {})
        assert not isinstance(launch, Declined), launch.reason
        launch(*refs, out, flag)
        assert fresh.download(flag) == (value != 1.0)


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


def test_norms_of_tensors_of_several_dtypes(device: Any, rng: Any) -> None:
    xs = [rng.uniform(-1, 1, shape).astype(kind) for shape, kind in zip(SHAPES, itertools.cycle("fdf"), strict=False)]
    launch, _ = lower(device, "norms", [upload(device, x) for x in xs], {})
    assert launch.name == "squares_of_chunks, norms_of_tensors"
    (got,) = run(device, "norms", xs)
    np.testing.assert_allclose(got, [np.linalg.norm(x.astype(np.float64).ravel()) for x in xs], rtol=2e-6)


def test_adam_on_gpus(gpu: Any, rng: Any) -> None:
    xs = [*tensors(rng), *tensors(rng), *tensors(rng), *tensors(rng, 0.01), *ADAM]
    check(gpu, "adam_step", xs, ulps=16, **FLAGS)
