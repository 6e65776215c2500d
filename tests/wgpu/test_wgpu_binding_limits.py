"""Operands beyond the maximum binding size are processed in parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_harness import Harness
from native_ops import check, check_cross_entropy, run, upload
from optimizer_inputs import ADAM, FLAGS

from polyhal.backends.wgpu import discovery
from polyhal.backends.wgpu.backend import open_adapter
from polyhal.hal import dtypes
from polyhal.hal.ops import OPS


@pytest.fixture(scope="module")
def narrow(found: discovery.WGPUAdapter) -> Harness:
    """Open a device with a maximum binding size of 16 KiB."""
    return Harness(open_adapter(found, binding_limit=1 << 14))


def test_tables(narrow: Harness, rng: Any) -> None:
    table, index = rng.uniform(-1, 1, (300, 32)), rng.integers(-3, 303, 500)
    check(narrow, "embedding", [table, index.astype(narrow.index_dtype)], ulps=0)


def test_cross_entropy(narrow: Harness, rng: Any) -> None:
    check_cross_entropy(narrow, rng, 300, 65, 0.1, dtypes.float32, np.int32)


def test_products(narrow: Harness, rng: Any) -> None:
    def draw(*shape: int) -> np.ndarray:
        return rng.uniform(-1, 1, shape)  # type: ignore[no-any-return]

    for m, n, k in ((200, 60, 50), (60, 200, 50), (20, 30, 700)):
        check(narrow, "matmul", [draw(m, k), draw(k, n)], ulps=8 + k**0.5)
        check(narrow, "matmul", [draw(k, m).T, draw(n, k).T], ulps=8 + k**0.5)
        check(narrow, "linear", [draw(3, m, k), draw(n, k), draw(n)], ulps=8 + k**0.5)


def test_norms(narrow: Harness, rng: Any) -> None:
    x, tail = rng.uniform(-1, 1, (90, 3, 65)), rng.uniform(-1, 1, 65)
    check(narrow, "layer_norm", [x, tail, tail], ulps=16, axes=1, eps=1e-5)
    check(narrow, "rms_norm", [x, None], ulps=16, axes=2, eps=1e-5)


def test_softmax(narrow: Harness, rng: Any) -> None:
    for shape, axis in (((70, 130), 1), ((3, 50, 70), 2), ((3, 50, 30), 1)):
        x, g = rng.uniform(-4, 4, shape), rng.uniform(-1, 1, shape)
        check(narrow, "softmax", [x], axis=axis)
        out = OPS["softmax"].reference(x, axis=axis)
        check(narrow, "softmax_grad", [g, out], magnitude=1, axis=axis)
        check(narrow, "log_softmax_grad", [g, np.log(out)], ulps=64, magnitude=1, axis=axis)


def test_reductions(narrow: Harness, rng: Any) -> None:
    for shape in ((30_001,), (170, 130), (5, 60, 70), (20, 3, 400)):
        x = rng.integers(-99, 99, shape).astype(np.float32)
        for axes in {(0,), (len(shape) - 1,), tuple(range(len(shape)))}:
            for op, reference in (("sum", np.sum), ("max", np.max)):
                (got,) = run(narrow, op, [x], axis=axes, keepdims=False)
                np.testing.assert_array_equal(got, reference(x, axes))
    x = rng.integers(-99, 99, (200, 150)).astype(np.float32)
    out = narrow.empty(dtypes.float32, (150,))
    narrow.backend.reduce("sum", upload(narrow, x.T), out)
    np.testing.assert_array_equal(narrow.download(out), x.sum(0))


def test_optimizer_steps(found: discovery.WGPUAdapter, rng: Any) -> None:
    device = Harness(open_adapter(found, binding_limit=1 << 16))
    p, g, m, v = (rng.uniform(0.1, 1, (3, 20011)) for _ in range(4))
    check(device, "adam_step", [p, g.reshape(20011, 3).T, m, v, *ADAM], ulps=16, **{**FLAGS, "count": 1})
    check(device, "sum_of_squares", [p, g[0]], ulps=16)
    check(device, "norms", [g[0], p, g[1, :7]], ulps=16)
    steps = (("multiply", (0, 0), ()),)
    check(device, "foreach_elementwise", [g[0], p, g[1, :7]], ulps=64, count=3, steps=steps, results=(1,), sums=(1, 0))
