"""Reductions by sub-group shuffles on drivers with sub-groups: Intel's CPU runtime, treated as a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_harness import as_gpu
from native_ops import check

from polyhal.backends.opencl_c.language import BY_SUBGROUPS
from polyhal.backends.opencl_c.lowering.support import group_reduce
from polyhal.hal import dtypes
from polyhal.hal.ops import OPS


@pytest.fixture
def gpu(device: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[int]]:
    """Return the device, treated as a GPU, and the exchanges of the kernels that it selects."""
    runtime = device.backend.runtime
    if not runtime.features.subgroups:
        pytest.skip(f"{device.backend.info.name} lists no sub-groups with shuffles")
    monkeypatch.setattr(
        runtime, "features", as_gpu(runtime.features, group_size=64, vector_width=4, compute_units=4, float_atomics="")
    )
    chosen: list[int] = []

    def noted(result: Any) -> Any:
        chosen.append(result)
        return result

    original = group_reduce.exchange
    for module in _users():
        monkeypatch.setattr(module, "exchange", lambda *args: noted(original(*args)))
    return device, chosen


def _users() -> list[Any]:
    """Return the modules that select an exchange."""
    import sys

    return [
        m for name, m in sys.modules.items() if name.startswith("polyhal.backends.opencl") and hasattr(m, "exchange")
    ]


@pytest.mark.parametrize("columns", [333])
def test_rows_are_reduced_by_subgroups(gpu: tuple[Any, list[int]], rng: Any, columns: int) -> None:
    device, chosen = gpu
    x = rng.uniform(-9, 9, (5, columns))
    check(device, "sum", [x], ulps=64, axis=(1,), keepdims=False)
    check(device, "max", [x], ulps=0, axis=(1,), keepdims=False)
    check(device, "softmax", [x], ulps=32, axis=1)
    check(device, "layer_norm", [x, np.ones(columns), np.zeros(columns)], ulps=16, axes=1, eps=1e-5)
    target = rng.integers(0, columns, 5)
    check(device, "cross_entropy_rows", [x, target], ulps=16)
    _, lse = OPS["cross_entropy_rows"].reference(x, target)
    g = rng.uniform(-1, 1, 5).astype(np.float32)
    check(device, "cross_entropy_rows_grad", [g, x, target, lse.astype(np.float32)], dtypes.float32, ulps=64)
    assert BY_SUBGROUPS in chosen
    assert device.backend.runtime.features.subgroups, "the driver lists sub-groups and does not compile them"
