"""Tiles and blocks of matrix products that this device would not choose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from polyhal.backends.common.problems.gemm import describe
from polyhal.backends.wgpu.lowering.gemm import blocks, tiles
from polyhal.backends.wgpu.lowering.gemm.blocks import Block
from polyhal.backends.wgpu.lowering.gemm.tiles import Tile
from polyhal.hal import dtypes
from polyhal.hal.layout import contiguous


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
    a, b = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((70, 100), (100, 150)))
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
