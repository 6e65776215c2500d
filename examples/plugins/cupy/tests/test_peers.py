"""Several cards: copies between them, and NCCL against NumPy. Skipped on machines with a single card."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import missing

import polyhal
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.testing.kit import contract_peer
from polyhal.hal.testing.kit.scope import Scope
from polyhal.parallel import Group

if reason := missing():
    pytest.skip(reason, allow_module_level=True)

from polyhal_cupy.discovery import probe
from polyhal_cupy.nccl import NcclCommunicator, nccl_library

COUNT = len(probe())
if COUNT < 2:
    pytest.skip("found one CUDA device; two are required", allow_module_level=True)


@pytest.fixture(scope="module")
def devices() -> list[polyhal.Device]:
    return [polyhal.Device(f"cupy:{i}") for i in range(COUNT)]


@pytest.mark.parametrize("check", ["order", "ranges", "released_memory", "streams", "event"])
def test_copies_between_cards_keep_the_contract(devices: list[Any], check: str) -> None:
    first, second = (d.backend for d in devices[:2])
    assert first.can_copy_from(second)
    getattr(contract_peer, check)(first, second, Scope())
    getattr(contract_peer, check)(second, first, Scope())


@pytest.mark.skipif(nccl_library() is None, reason="NCCL is not installed")
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.int32, dtypes.int16], ids=lambda d: d.name)
@pytest.mark.parametrize("rows", [2 * COUNT, 2 * COUNT + 1], ids=["even", "uneven"])
def test_collectives_agree_with_numpy(devices: list[Any], dtype: DType, rows: int) -> None:
    """Sums of small integers are exact in every dtype."""
    rng = np.random.default_rng(1)
    group = Group(devices)
    assert isinstance(group.communicator, NcclCommunicator)
    values = [rng.integers(0, 5, (rows, 1000)).astype(dtype.numpy) for _ in devices]
    tensors = [polyhal.tensor(v, device=d) * 1 for v, d in zip(values, devices, strict=True)]
    total = np.sum(np.stack(values).astype(np.int64), 0).astype(dtype.numpy)
    for result in group.all_reduce(tensors):
        np.testing.assert_array_equal(result.numpy(), total)
    np.testing.assert_array_equal(np.concatenate([r.numpy() for r in group.reduce_scatter(tensors)]), total)
    parts = group.scatter(tensors[0])
    np.testing.assert_array_equal(np.concatenate([p.numpy() for p in parts]), values[0])
    for whole in group.all_gather(parts):
        np.testing.assert_array_equal(whole.numpy(), values[0])
    for copy in group.broadcast(tensors[0]):
        np.testing.assert_array_equal(copy.numpy(), values[0])
