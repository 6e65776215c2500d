"""Norms and finite checks of lists of tensors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from native_ops import lower, run, upload
from optimizer_inputs import SHAPES

from polyhal.backends.opencl_c import language
from polyhal.hal import dtypes
from polyhal.hal.protocol import Declined


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


def test_norms_of_tensors_of_several_dtypes(device: Any, rng: Any) -> None:
    xs = [rng.uniform(-1, 1, shape).astype(kind) for shape, kind in zip(SHAPES, itertools.cycle("fdf"), strict=False)]
    launch, _ = lower(device, "norms", [upload(device, x) for x in xs], {})
    assert launch.name == "squares_of_chunks, pointwise_sums_of_tensors"
    (got,) = run(device, "norms", xs)
    np.testing.assert_allclose(got, [np.linalg.norm(x.astype(np.float64).ravel()) for x in xs], rtol=2e-6)
