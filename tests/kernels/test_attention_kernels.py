"""Attention and its gradient: shapes near tile sizes, masks, causality, views, fully masked rows.

Few kinds of heads, because each requires three compilations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_ops import check, check_attention, check_placed, draw_attention

from polyhal.hal import dtypes
from polyhal.hal.core.settings.precision import float32_matmul_precision
from polyhal.hal.ops import OPS

SHAPES = [
    ((), 3, 4, 5, 5),
    ((2, 3), 70, 70, 32, 32),
    ((2,), 1, 130, 64, 64),
    ((3,), 65, 33, 16, 40),
    ((2,), 100, 257, 80, 130),
]
OPENCL_CASES = [
    *((shape, causal, "none") for shape in SHAPES for causal in (False, True)),
    *((shape, causal, kind) for shape in SHAPES[1:4:2] for causal, kind in ((False, "bool"), (True, "float"))),
]
CASES = [
    (((2, 3), 70, 130, 16, 16), False, "bool"),
    (((3,), 65, 33, 16, 16), True, "none"),
    (((2,), 1, 130, 32, 64), False, "float"),
    (((), 30, 40, 7, 18), True, "none"),
    *(pytest.param(*case, marks=pytest.mark.only_on("opencl")) for case in OPENCL_CASES),
]
"""Shapes, causality and masks. Other sizes of heads are compilations that take seconds on wgpu."""


@pytest.mark.parametrize(("shape", "causal", "kind"), CASES, ids=str)
def test_shapes_and_masks(device: Any, rng: Any, shape: Any, causal: bool, kind: str) -> None:
    lead, t, s, _, _ = shape
    keep = rng.random((t, s)) < 0.7
    keep[:, 0] = True
    mask = {"none": None, "bool": keep, "float": rng.uniform(-1, 1, (*lead, 1, s))}[kind]
    check_attention(device, [*draw_attention(rng, *shape), mask], causal=causal)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("features", [16, pytest.param(24, marks=pytest.mark.only_on("opencl"))])
def test_dtypes(device: Any, rng: Any, dtype: dtypes.DType, features: int) -> None:
    check_attention(device, [*draw_attention(rng, (2,), 40, 70, features, features), None], dtype, causal=True)


@pytest.mark.only_on("opencl")
def test_high_precision_is_as_exact(device: Any, rng: Any) -> None:
    """The call is large enough that devices with matrix units split float32 into bfloat16 terms."""
    with float32_matmul_precision("high"):
        check_attention(device, [*draw_attention(rng, (1,), 1024, 1024, 64, 64), None], causal=True)


def test_heads_as_views(device: Any, rng: Any) -> None:
    """Queries, keys and values of a transformer: three slices of one tensor with interleaved heads."""
    together = rng.uniform(-1, 1, (2, 50, 3, 3, 16))
    q, k, v = (together[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    check_attention(device, [q, k, v, None], causal=True)
    q, k, v = (rng.uniform(-1, 1, (3, 5, 20, 2, 16)).transpose(0, 3, 1, 2, 4)[:, :, ::2] for _ in range(3))
    check(device, "attention", [q, k, v, None], ulps=32, causal=False)


@pytest.mark.only_on("opencl")
@pytest.mark.parametrize("features", [(32, 32), (13, 20)], ids=str)
def test_results_are_written_in_place(device: Any, rng: Any, features: tuple[int, int]) -> None:
    inputs = [x.astype(np.float32) for x in draw_attention(rng, (2, 3), 40, 40, *features)]
    check_placed(device, "attention", [*inputs, None], causal=True, scale=0.3)
    out, lse = OPS["attention"].reference(*inputs, None, causal=True, scale=0.3)
    # The saved result is read in place too.
    saved = np.ascontiguousarray(out.astype(np.float32).transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    g = rng.uniform(-1, 1, out.shape).astype(np.float32)
    check_placed(device, "attention_grad", [g, *inputs, None, saved, lse.astype(np.float32)], causal=True, scale=0.3)


@pytest.mark.parametrize("causal", [False, True])
def test_large_scores_do_not_overflow(device: Any, rng: Any, causal: bool) -> None:
    q, k, v = draw_attention(rng, (2,), 30, 90, 16, 16)
    check(device, "attention", [q * 100, k * 100, v, None], ulps=20000, causal=causal)
