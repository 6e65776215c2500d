"""Steps over more tensors than one launch holds, in place and not, with gradients of any layout."""

from __future__ import annotations

from typing import Any

import pytest
from native_ops import check
from optimizer_cases import (
    ADAM,
    COUNT,
    tensors,
    test_adam_in_place,
    test_adam_keeps_half_precision_parameters_beside_single_precision_state,
    test_gradient_scaling,
    test_gradients_may_be_views,
    test_sgd_with_momentum,
    test_the_reference_is_adam_as_published,
)

from polyhal.hal import dtypes

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
    check(device, "adam_step", xs, dtype, ulps=16, count=COUNT, decoupled=decoupled)
