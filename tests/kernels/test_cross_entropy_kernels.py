"""Cross entropy by rows and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_ops import check, check_cross_entropy, check_joined_cross_entropy, logsumexp

from polyhal.hal import dtypes

DTYPES = [dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.float64]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(
    ("rows", "classes", "dtype"),
    [
        *((*shape, dtype) for shape in [(1, 2), (65, 10), (33, 65), (5, 3000)] for dtype in DTYPES),
        *((*shape, dtypes.float32) for shape in [(500, 64), (3, 50_257)]),
    ],
    ids=str,
)
def test_forward_and_backward(
    device: Any, rng: Any, rows: int, classes: int, smoothing: float, dtype: dtypes.DType
) -> None:
    check_cross_entropy(device, rng, rows, classes, smoothing, dtype, np.int32)


@pytest.mark.parametrize("index", [np.int64, np.uint8, np.int16])
def test_targets_of_any_integer_type(device: Any, rng: Any, index: type) -> None:
    if not device.stores(dtypes.as_dtype(np.dtype(index))):
        pytest.skip("the device does not store this dtype")
    check_cross_entropy(device, rng, 70, 33, 0.0, dtypes.float32, index)


def test_the_gradient_of_a_mean_is_broadcast(device: Any, rng: Any) -> None:
    x = rng.uniform(-2, 2, (7, 5))
    g = np.broadcast_to(np.full((1,), 0.25, np.float32), (7,))
    lse = logsumexp(x.astype(np.float32)).astype(np.float32)
    for index in (np.int32, device.index_dtype):
        check(device, "cross_entropy_rows_grad", [g, x, np.arange(7, dtype=index) % 5, lse], ulps=16)


@pytest.mark.kernels_of("cross_entropy_rows_and_grad")
@pytest.mark.parametrize(
    ("rows", "classes", "dtype"),
    [(33, 65, dtypes.float32), (5, 3000, dtypes.bfloat16), (7, 19, dtypes.float64)],
    ids=str,
)
def test_loss_and_gradient_in_one_pass(device: Any, rng: Any, rows: int, classes: int, dtype: dtypes.DType) -> None:
    if not device.stores(dtype):
        pytest.skip("the device does not store this dtype")
    check_joined_cross_entropy(device, rng, (rows, classes), dtype)
    check_joined_cross_entropy(device, rng, (rows, classes), dtype, columns=classes + 3)
