"""Matrix products of all shapes, strides, batches and dtypes, through each of the kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_harness import Harness
from native_ops import check, run

from polyhal.backends.common.problems.gemm import describe
from polyhal.backends.wgpu import discovery
from polyhal.backends.wgpu.backend import open_adapter
from polyhal.backends.wgpu.lowering.gemm import blocks, tiles
from polyhal.backends.wgpu.lowering.gemm.blocks import Block
from polyhal.backends.wgpu.lowering.gemm.tiles import Tile
from polyhal.hal import dtypes
from polyhal.hal.layout import contiguous

# Vectors, few rows, few columns, edges of blocks and tiles, split sums.
SHAPES = [(1, 70, 600), (3, 130, 520), (13, 33, 40), (129, 65, 300)]


def _draw(rng: Any, *shape: int) -> Any:
    return rng.uniform(-1, 1, shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("transposed", ["nn", "tt"])
def test_transposed_views(device: Any, rng: Any, shape: tuple[int, int, int], transposed: str) -> None:
    m, n, k = shape
    x = _draw(rng, k, m).T if transposed[0] == "t" else _draw(rng, m, k)
    y = _draw(rng, n, k).T if transposed[1] == "t" else _draw(rng, k, n)
    check(device, "matmul", [x, y], ulps=8 + k**0.5)


@pytest.mark.parametrize("transposed", ["nn", "tt"])
@pytest.mark.parametrize("shape", [(68, 72, 132), (4, 64, 1024)], ids=str)
def test_whole_vectors(device: Any, rng: Any, shape: tuple[int, int, int], transposed: str) -> None:
    test_transposed_views(device, rng, shape, transposed)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(13, 33, 40), (68, 72, 132)], ids=str)
def test_half_precision(device: Any, rng: Any, shape: tuple[int, int, int], dtype: dtypes.DType) -> None:
    m, n, k = shape
    check(device, "matmul", [_draw(rng, m, k), _draw(rng, k, n)], dtype, ulps=4)


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.int64, dtypes.int8, dtypes.uint8], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(3, 4, 5), (70, 44, 130)], ids=str)
def test_integers_wrap(device: Any, rng: Any, shape: tuple[int, int, int], dtype: dtypes.DType) -> None:
    if dtype not in device.backend.capabilities.storage:
        pytest.skip(f"no {dtype.name} on this device")
    m, n, k = shape
    x, y = (rng.integers(0, 100, s).astype(dtype.numpy) for s in ((m, k), (k, n)))
    (out,) = run(device, "matmul", [x, y])
    np.testing.assert_array_equal(out, (x.astype(np.int64) @ y.astype(np.int64)).astype(dtype.numpy))


@pytest.mark.parametrize(
    ("x", "y"),
    [((5, 20, 64), (64, 50)), ((2, 1, 40, 50), (3, 50, 60)), ((7, 1, 30), (30, 40)), ((3, 2, 4, 5), (3, 2, 5, 4))],
)  # fmt: skip
def test_batches(device: Any, rng: Any, x: tuple[int, ...], y: tuple[int, ...]) -> None:
    check(device, "matmul", [_draw(rng, *x), _draw(rng, *y)], ulps=16)


def test_heads_as_views(device: Any, rng: Any) -> None:
    """(batch, time, heads, features) viewed as (batch, heads, time, features), without a copy."""
    q, k = (_draw(rng, 2, 40, 3, 16) for _ in range(2))
    check(device, "matmul", [q.transpose(0, 2, 1, 3), k.transpose(0, 2, 3, 1)], ulps=16)


def test_negative_and_wide_strides(device: Any, rng: Any) -> None:
    check(device, "matmul", [_draw(rng, 2, 50, 80)[:, ::-1, ::2], _draw(rng, 80, 70)[::-2, ::-1]], ulps=16)


@pytest.mark.parametrize(("lead", "inner", "outer"), [((), 64, 50), ((5,), 700, 2), ((130,), 300, 92)])
def test_linear(device: Any, rng: Any, lead: tuple[int, ...], inner: int, outer: int) -> None:
    x, weight = _draw(rng, *lead, inner), _draw(rng, outer, inner)
    check(device, "linear", [x, weight, _draw(rng, outer)], ulps=8 + inner**0.5)
    check(device, "linear", [x, weight, None], ulps=8 + inner**0.5)


def test_nan_spreads_only_through_terms_of_a_sum(device: Any, rng: Any) -> None:
    """Padding at the edges of a tile or of a strip of terms may not affect a result."""
    x, y = _draw(rng, 40, 45).astype(np.float32), _draw(rng, 45, 70).astype(np.float32)
    x[3, 7], y[11, 20] = np.nan, np.inf
    (out,) = run(device, "matmul", [x, y])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(np.isfinite(out), np.isfinite(x @ y))


def test_few_results_use_split_sums(device: Any, rng: Any) -> None:
    """The shape of a weight's gradient: few results, many terms; results are reproducible."""
    x, y = _draw(rng, 5000, 48).T, _draw(rng, 5000, 40)
    check(device, "matmul", [x, y], ulps=80)
    x, y = x.astype(np.float32), y.astype(np.float32)
    np.testing.assert_array_equal(run(device, "matmul", [x, y])[0], run(device, "matmul", [x, y])[0])


@pytest.mark.parametrize(
    "variant",
    [Tile(2, 2, 8, 1, 16), Tile(1, 2, 16, 1, 4), Block(8, 2, 2, 4)],
    ids=lambda v: type(v).__name__ + str(v.definitions()["QUADS" if isinstance(v, Block) else "QUAD_ROWS"]),
)
def test_tiles_and_blocks_of_other_shapes(
    device: Any, rng: Any, variant: Tile | Block, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = device.backend.runtime
    if runtime.features.cpu:
        pytest.skip("used by GPUs only")
    a, b = _draw(rng, 70, 100).astype(np.float32), _draw(rng, 100, 150).astype(np.float32)
    x, y, out = device.upload(a), device.upload(b), device.empty(dtypes.float32, (70, 150))
    p = describe(x.spec, y.spec, contiguous(dtypes.float32, (70, 150)), (0, 1, None, 2, 3))
    if isinstance(variant, Tile):
        if variant.memory(4) > device.backend.features.local_memory:
            pytest.skip("not enough workgroup memory")
        launch = tiles.multiply(runtime, p, variant)
    else:
        monkeypatch.setattr(blocks, "choose", lambda *_: variant)
        launch = blocks.multiply(runtime, p)
    launch(x, y, out, *[device.backend.allocate(n) for n in launch.workspace])
    np.testing.assert_allclose(device.download(out), a.astype(np.float64) @ b, rtol=0, atol=1e-4)


def test_matrices_beyond_the_binding_limit(found: discovery.WGPUAdapter, rng: Any) -> None:
    """Operands beyond a maximum binding size of 16 KiB are multiplied in parts."""
    device = Harness(open_adapter(found, binding_limit=1 << 14))
    for m, n, k in ((200, 60, 50), (60, 200, 50), (20, 30, 700)):
        check(device, "matmul", [_draw(rng, m, k), _draw(rng, k, n)], ulps=8 + k**0.5)
        check(device, "matmul", [_draw(rng, k, m).T, _draw(rng, n, k).T], ulps=8 + k**0.5)
        check(device, "linear", [_draw(rng, 3, m, k), _draw(rng, n, k), _draw(rng, n)], ulps=8 + k**0.5)


def test_a_product_of_more_terms_than_a_loop_has_iterations(device: Any) -> None:
    count = 1 << 21
    (out,) = run(device, "matmul", [np.ones((1, count), np.float32), np.ones((count, 1), np.float32)])
    assert out.item() == count
