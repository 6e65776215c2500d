"""Transfers of batches: copies overlap with computation, and reuse memory that is free."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal.data import DataLoader, Subset, TensorDataset
from polyhal.data.transfer import StreamSlot, slot_factory
from polyhal.hal.protocol import TRANSFER, Feature
from polyhal.profiler import profile

_DATA = np.random.default_rng(0).standard_normal((24, 64, 64)).astype(np.float32)


@pytest.fixture
def streaming(device: ph.Device) -> ph.Device:
    if not device.features & Feature.STREAMS or not device.features & Feature.PINNED_MEMORY:
        pytest.skip("the device copies in line with its other work")
    return device


def test_batches_that_are_kept_stay_as_they_are(device: ph.Device) -> None:
    kept = [x for (x,) in DataLoader(TensorDataset(_DATA), 2, device=device, prefetch=1)]
    for i, x in enumerate(kept):
        np.testing.assert_array_equal(x.numpy(), _DATA[2 * i : 2 * i + 2])


def test_views_of_a_batch_keep_it(device: ph.Device) -> None:
    rows = []
    for (x,) in DataLoader(TensorDataset(_DATA), 2, device=device, prefetch=1):
        rows.append(x[1, 3])
    np.testing.assert_array_equal(np.stack([r.numpy() for r in rows]), _DATA[1::2, 3])


def test_batches_that_are_dropped_make_room(streaming: ph.Device) -> None:
    seen = set()
    for (x,) in DataLoader(TensorDataset(_DATA), 2, device=streaming, prefetch=1):
        seen.add(id(x.buffer.handle))
        x += 1.0
    assert len(seen) <= 3


def test_shapes_may_change_from_batch_to_batch(device: ph.Device) -> None:
    samples = [np.arange(n, dtype=np.int32) for n in (5, 300, 2, 0, 70_000, 5, 1, 300)]
    loader = DataLoader(samples, 1, device=device, collate_fn=lambda s: {"ids": s[0], "twice": 2 * s[0]})  # type: ignore[arg-type]
    for expected, batch in zip(samples, loader, strict=True):
        np.testing.assert_array_equal(batch["ids"].numpy(), expected)
        np.testing.assert_array_equal(batch["twice"].numpy(), 2 * expected)


def test_an_early_exit_leaves_memory_alone(device: ph.Device) -> None:
    for stop in range(4):
        loader = iter(DataLoader(TensorDataset(_DATA), 4, device=device))
        for _ in range(stop):
            next(loader)
        (x,) = next(loader)
        loader.close()  # type: ignore[attr-defined]
        y = ph.zeros((4, 64, 64), device=device) + 1.0
        np.testing.assert_array_equal(x.numpy(), _DATA[4 * stop : 4 * stop + 4])
        assert (y.numpy() == 1).all()


def test_slots_of_devices_with_streams(streaming: ph.Device) -> None:
    assert isinstance(slot_factory(streaming)(), StreamSlot)


def test_copies_run_beside_kernels(streaming: ph.Device) -> None:
    """By device timestamps. An attempt in which the machine was busy elsewhere may show none."""
    weight = ph.Tensor(np.ones((1024, 128), np.float32), device=streaming)
    data = TensorDataset(np.ones((24, 512, 1024), np.float32))

    def step(x: Any) -> None:
        for _ in range(3):
            ph.reshape(x, (-1, 1024)) @ weight

    for _ in range(5):
        with profile(streaming) as found:
            for (x,) in DataLoader(data, 2, device=streaming):
                step(x)
        copies = [(x.begin, x.end) for x in found.launches if x.kernel == TRANSFER]
        kernels = [(x.begin, x.end) for x in found.launches if x.kernel != TRANSFER]
        # Twelve batches of two samples, which the simulated GPU is given one by one.
        assert len(copies) == (24 if streaming.name.startswith("sim") else 12)
        if sum(max(0, min(b, d) - max(a, c)) for a, b in copies for c, d in kernels) > 0:
            return
    pytest.fail("no copy ran while a kernel did")


@pytest.mark.parametrize("threads", [1, 3])
def test_page_locked_memory_is_filled_and_sent_in_chunks(
    streaming: ph.Device, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    """As on devices with a bus, for read and unread arrays, with rows in any order."""
    pool = ThreadPoolExecutor(threads) if threads > 1 else None
    monkeypatch.setattr("polyhal.data.staging._threads", lambda pid: pool)
    monkeypatch.setattr(streaming.backend, "capabilities", replace(streaming.capabilities, unified_memory=False))
    monkeypatch.setattr("polyhal.data.staging._CHUNK", 1000)
    labels = np.arange(24)
    for data in (TensorDataset(_DATA, labels), Subset(TensorDataset(_DATA, labels), np.arange(24) - 24)):
        loader = DataLoader(data, 5, shuffle=True, seed=3, device=streaming)
        for _ in range(2):
            for x, y in loader:
                np.testing.assert_array_equal(x.numpy(), _DATA[y.numpy()])
    samples = [np.arange(n, dtype=np.int32) for n in (0, 5000, 3)]
    whole = DataLoader(samples, 1, device=streaming, collate_fn=lambda s: s[0])  # type: ignore[arg-type]
    for expected, x in zip(samples, whole, strict=True):
        np.testing.assert_array_equal(x.numpy(), expected)


def test_passes_share_page_locked_memory(streaming: ph.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming.backend, "capabilities", replace(streaming.capabilities, unified_memory=False))
    backend: Any = streaming.backend
    taken: list[int] = []
    allocate = backend.allocate_pinned
    monkeypatch.setattr(backend, "allocate_pinned", lambda n: taken.append(n) or allocate(n))
    loader = DataLoader(TensorDataset(_DATA), 2, device=streaming, prefetch=1)
    for _ in range(3):
        for _ in loader:
            pass
    assert len(taken) == 3
    assert not loader._idle[1][0]._buffers  # type: ignore[attr-defined]


def test_rows_out_of_range_are_refused() -> None:
    with pytest.raises(IndexError, match="rows 0 to 24"):
        TensorDataset(_DATA).lazy_batch(np.array([0, 24]))
