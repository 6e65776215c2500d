"""Optimizer steps over more tensors than one launch holds, in place and out of place, with gradients of any layout."""

from __future__ import annotations

from typing import Any

import pytest
from native_harness import Harness
from native_ops import check
from optimizer_cases import (
    ADAM,
    FLAGS,
    tensors,
    test_adam_in_place,
    test_adam_keeps_half_precision_parameters_beside_single_precision_state,
    test_gradient_scaling,
    test_gradients_may_be_views,
    test_sgd_with_momentum,
    test_the_reference_is_adam_as_published,
)

from polyhal.backends.wgpu import discovery
from polyhal.backends.wgpu.backend import open_adapter
from polyhal.hal import dtypes

__all__ = [
    "test_adam_in_place",
    "test_adam_keeps_half_precision_parameters_beside_single_precision_state",
    "test_gradient_scaling",
    "test_gradients_may_be_views",
    "test_sgd_with_momentum",
    "test_the_reference_is_adam_as_published",
]


@pytest.mark.parametrize("dtype", [dtypes.float32], ids=lambda d: d.name)
@pytest.mark.parametrize("decoupled", [False, True])
def test_adam(device: Any, rng: Any, decoupled: bool, dtype: dtypes.DType) -> None:
    xs = [*tensors(rng), *tensors(rng), *tensors(rng), *tensors(rng, 0.01), *ADAM]
    check(device, "adam_step", xs, dtype, ulps=16, **{**FLAGS, "decoupled": decoupled})


def test_tensors_beyond_the_binding_size(found: discovery.WGPUAdapter, rng: Any) -> None:
    device = Harness(open_adapter(found, binding_limit=1 << 16))
    p, g, m, v = (rng.uniform(0.1, 1, (3, 20011)) for _ in range(4))
    check(device, "adam_step", [p, g.reshape(20011, 3).T, m, v, *ADAM], ulps=16, **{**FLAGS, "count": 1})
    check(device, "sum_of_squares", [p, g[0]], ulps=16)
