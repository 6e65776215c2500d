"""Products by clusters of groups, in portable form on any device: a cluster's groups compute parts of one tile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from native_harness import Harness, as_gpu
from native_ops import upload

from polyhal.backends.common.launching.launch import LaunchSequence
from polyhal.backends.common.problems import gemm
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl import discovery
from polyhal.backends.opencl.backend import OpenCLBackend
from polyhal.backends.opencl_c.lowering.gemm import cluster_tiles, tensor_cores, tile_configs, wgmma
from polyhal.backends.opencl_c.lowering.gemm.arguments import geometry
from polyhal.backends.opencl_c.lowering.gemm.tile_configs import ClusterTile
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec


@pytest.fixture(scope="module")
def device(any_device: discovery.OpenCLDevice) -> Harness:
    """Return one device that compiles quickly: the kernel is equal on all devices."""
    return Harness(OpenCLBackend(any_device))


@pytest.fixture(autouse=True)
def features_with_clusters(monkeypatch: pytest.MonkeyPatch, device: Any) -> None:
    features = as_gpu(device.backend.runtime.features, compute_units=5, static_local_memory=1 << 20, clusters=True)
    monkeypatch.setattr(device.backend.runtime, "features", features)


def draw(rng: Any, dtype: DType, transposed: bool, *shape: int) -> Any:
    values = rng.uniform(-1, 1, (*shape[:-2], *(shape[:-3:-1] if transposed else shape[-2:]))).astype(dtype.numpy)
    return values.swapaxes(-1, -2) if transposed else values


@pytest.mark.parametrize(
    ("dtype", "batch", "m", "n", "k", "tile", "launches"),
    [
        (dtypes.bfloat16, (), 200, 136, 72, ClusterTile(1, 128, 3, 2), 1),
        (dtypes.float16, (), 72, 200, 1032, ClusterTile(2, 192, 3, 1), 2),
        (dtypes.float16, (2,), 264, 72, 136, ClusterTile(1, 256, 3, 4), 1),
        (dtypes.float16, (), 136, 648, 72, ClusterTile(2, 64, 3, blocks=2, turns=1), 1),
        (dtypes.bfloat16, (), 264, 136, 72, ClusterTile(3, 128, 3), 1),
    ],
    ids=str,
)
def test_edges_layouts_batches_and_splits(
    device: Any,
    rng: Any,
    dtype: DType,
    batch: tuple[int, ...],
    m: int,
    n: int,
    k: int,
    tile: ClusterTile,
    launches: int,
) -> None:
    """More tiles than clusters, tiles beyond the rows, ragged columns and terms; b is the same for the whole batch."""
    runtime = device.backend.runtime
    turned = tile.groups > 1
    x, y = draw(rng, dtype, turned, *batch, m, k), draw(rng, dtype, not turned, k, n)
    y = np.broadcast_to(y, (*batch, k, n))
    refs, out = [upload(device, a) for a in (x, y)], device.empty(dtype, (*batch, m, n))
    device.backend.fill(77, out)
    p = gemm.describe(refs[0].spec, refs[1].spec, out.spec, (0, 1, None, 2, 3))
    assert isinstance(p, Product)
    assert cluster_tiles.suits(runtime, p)
    built, workspace = cluster_tiles.multiply(runtime, p, p, geometry(p), p.workspace, {tile: 1.0})
    assert len(built) == launches
    LaunchSequence(built, workspace)(*refs, out, *[device.backend.allocate(nbytes) for nbytes in workspace])
    x, y = x.astype(np.float64), y.astype(np.float64)
    bound = 4 * 2.0**-22 * (np.abs(x) @ np.abs(y)) + 2.0 ** (-8 if dtype is dtypes.bfloat16 else -11) * np.abs(x @ y)
    assert (np.abs(device.download(out).astype(np.float64) - x @ y) <= bound + 1e-7).all()


@pytest.mark.parametrize(("n", "k"), [(136, 72), (136, 1032), (328, 72), (648, 72)])
def test_row_sums_of_the_left_operand(device: Any, rng: Any, n: int, k: int) -> None:
    """Also with terms that are split, and with one, two and four tiles of columns, whose groups add up parts of the rows."""
    x, y = draw(rng, dtypes.bfloat16, True, 200, k), draw(rng, dtypes.bfloat16, False, k, n)
    refs, outs = [upload(device, a) for a in (x, y)], [device.empty(dtypes.bfloat16, s) for s in ((200, n), (200,))]
    p = gemm.describe(refs[0].spec, refs[1].spec, outs[0].spec, (0, 1, None, 2, 4))
    assert isinstance(p, Product)
    p = replace(p, row_sums=3)
    tile = {ClusterTile(2, 192, 3, 1): 1.0}
    built, workspace = cluster_tiles.multiply(device.backend.runtime, p, p, geometry(p), p.workspace, tile)
    assert len(built) == (2 if k > 1000 else 1)
    for out in outs:
        device.backend.fill(77, out)
    LaunchSequence(built, workspace)(*refs, *outs, *[device.backend.allocate(nbytes) for nbytes in workspace])
    x, y = x.astype(np.float64), y.astype(np.float64)
    for out, wanted, magnitude in zip(outs, (x @ y, x.sum(1)), (np.abs(x) @ np.abs(y), np.abs(x).sum(1)), strict=True):
        bound = 4 * 2.0**-22 * magnitude + 2.0**-8 * np.abs(wanted) + 1e-7
        assert (np.abs(device.download(out).astype(np.float64) - wanted) <= bound).all()


def test_a_product_of_one_launch_requests_the_memory_of_its_maps(device: Any, rng: Any) -> None:
    x, y = draw(rng, dtypes.float16, False, 72, 64), draw(rng, dtypes.float16, True, 64, 136)
    refs, out = [upload(device, a) for a in (x, y)], device.empty(dtypes.float16, (72, 136))
    p = gemm.describe(refs[0].spec, refs[1].spec, out.spec, (0, 1, None, 2, 3))
    assert isinstance(p, Product)
    launch = wgmma.build(device.backend.runtime, p, tile_configs.WGMMA_TILES[1])
    assert len(launch.workspace) == 1
    launch(*refs, out, *[device.backend.allocate(nbytes) for nbytes in launch.workspace])
    np.testing.assert_allclose(device.download(out).astype(float), x.astype(float) @ y.astype(float), atol=0.02)


def test_operands_that_the_copy_engine_can_copy(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One stride is 1, the others are multiples of 16 bytes, and only one axis of the batch is left."""
    runtime, half = device.backend.runtime, dtypes.float16

    def suits(*, row: int = 512, column: int = 1, batch: tuple[int, ...] = (), aligned: bool = True) -> bool:
        steps = tuple(512 * 512 * (i + 1) for i in range(len(batch)))
        left = Spec(half, (*batch, 512, 512), (*steps, row, column), aligned)
        right = Spec(half, (*batch, 512, 512), (*steps, 512, 1), True)
        p = gemm.describe(left, right, right, (0, 1, None, 2, 3))
        return isinstance(p, Product) and cluster_tiles.suits(runtime, p)

    assert suits()
    assert suits(row=1, column=520)
    assert suits(batch=(3,))
    assert not suits(row=516)
    assert not suits(row=1024, column=2)
    assert not suits(aligned=False)
    monkeypatch.setattr(runtime, "features", replace(runtime.features, clusters=False))
    assert not suits()


def test_tiles_of_clusters_serve_more_than_32_rows(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = device.backend.runtime

    def chosen(m: int, n: int, k: int) -> tuple[list[str], ClusterTile, int]:
        left, right, out = (Spec(dtypes.bfloat16, shape, (shape[1], 1), True) for shape in ((m, k), (k, n), (m, n)))
        p = gemm.describe(left, right, out, (0, 1, None, 2, 3))
        assert isinstance(p, Product)
        names = [c.func.__module__.rpartition(".")[2] for c in tensor_cores.candidates(runtime, p)]  # type: ignore[attr-defined]
        return (names, *_tile_and_splits(runtime, p))

    h200 = replace(runtime.features, compute_units=132, compute_capability=90, static_local_memory=200 << 10)
    monkeypatch.setattr(runtime, "features", h200)
    assert chosen(64, 14336, 4096) == (["wgmma", "mma"], ClusterTile(2, 128, 8, turns=1), 1)
    assert chosen(64, 4096, 4096) == (["wgmma", "mma"], ClusterTile(1, 128, 8), 4)
    assert chosen(8192, 8192, 8192) == (["wgmma", "mma"], ClusterTile(2, 256, 4), 1)
    assert chosen(16384, 1152, 384) == (["wgmma", "mma"], ClusterTile(2, 192, 5, blocks=2, turns=1), 1)
    assert chosen(32, 14336, 4096)[0] == ["mma"]
    monkeypatch.setattr(runtime, "features", replace(h200, clusters=False))
    # Sums of 2 x 192 columns would need registers of the warpgroup that copies.
    assert chosen(16384, 1152, 384)[1] == ClusterTile(2, 128, 6, blocks=2, turns=1)
    monkeypatch.setattr(runtime, "features", replace(h200, clusters=False, compute_capability=80))
    assert chosen(64, 14336, 4096)[0] == ["mma"]


def _tile_and_splits(runtime: Any, p: Product) -> tuple[ClusterTile, int]:
    tile, split = tile_configs.choose(runtime, p, tile_configs.CLUSTERS, tile_configs.CLUSTER_TILES)
    return tile, split.splits
