"""The summary of a device's memory: live, pooled, by module; limits set by users; and memory released by a captured step."""

from __future__ import annotations

import time

import pytest

import polyhal as ph
from polyhal import nn
from polyhal.backends.numpy.backend import create
from polyhal.hal.device import Device
from polyhal.hal.errors import CaptureError, OutOfMemoryError

MIB = 2**20


@pytest.fixture
def fresh() -> Device:
    """Return a device without any work."""
    return Device.opened("numpy", create(""))


def block(device: Device, mib: float) -> ph.Tensor:
    return ph.zeros((int(mib * MIB / 4),), device=device)


def test_live_and_pooled_memory_and_fragmentation(fresh: Device) -> None:
    kept, *freed = block(fresh, 1), block(fresh, 2), block(fresh, 6)
    del freed
    summary = ph.memory_summary(fresh)
    assert (summary.live, summary.pooled, summary.peak, summary.largest_free) == (MIB, 8 * MIB, 9 * MIB, 6 * MIB)
    assert (summary.reserved, summary.fragmentation, summary.limit) == (9 * MIB, 0.25, None)
    lines = str(summary).splitlines()
    assert lines[0] == "numpy: 9.00 MiB reserved"
    assert lines[1] == "  live             1.00 MiB  at most 9.00 MiB"
    assert lines[2] == "  pooled           8.00 MiB  25% of it not in the largest block, 6.00 MiB"
    assert lines[-1] == "  3 blocks were allocated, 0 of them by reuse of free blocks"
    fresh.empty_cache()
    assert ph.memory_summary(fresh).fragmentation == 0
    assert kept.size


def test_memory_by_module(fresh: Device) -> None:
    model = nn.Sequential(nn.Linear(64, 256, device=fresh), nn.ReLU(), nn.Linear(256, 64, device=fresh))
    x = ph.ones((1024, 64), device=fresh)
    with ph.record_memory_history():
        out = model(x)
        hidden = out * 2.0  # the last one
        modules = {name: nbytes for name, nbytes, _ in ph.memory_summary(fresh).modules}
        assert modules["0"] == MIB  # the product, or the activation's result in its memory
        assert modules["2"] == MIB // 4
        assert any("# the last one" in name for name in modules)
        assert modules["(copies from the host, and captured steps)"] >= MIB // 4
        hidden.sum().backward()
        names = [name for name, *_ in ph.memory_summary(fresh).modules]
        assert "0, gradient" in names
        assert "(1 block)" in str(ph.memory_summary(fresh))
    assert ph.memory_summary(fresh).modules == ()


def test_the_history_covers_runs_not_recordings(fresh: Device) -> None:
    def step(x: ph.Tensor) -> ph.Tensor:
        with ph.record_memory_history():
            return x + 1

    with pytest.raises(CaptureError, match=r"use step\.memory_report"):
        ph.jit(step, warm_up=False)(ph.ones((2,), device=fresh))


def test_a_limit_is_respected_and_free_blocks_count_as_free(fresh: Device) -> None:
    fresh.set_memory_limit(8 * MIB)
    kept = block(fresh, 5)
    block(fresh, 2)
    other = block(fresh, 3)  # replaces the free block of 2 MiB
    with pytest.raises(OutOfMemoryError) as caught:
        block(fresh, 1)
    assert str(caught.value).startswith(
        "[full] no memory for 1.00 MiB: 8.00 MiB are in use and 0.00 MiB are left; device.set_memory_limit allows 8.00 MiB; "
    )
    assert "numpy: 8.00 MiB reserved, limited to 8.00 MiB" in str(ph.memory_summary(fresh))
    fresh.set_memory_limit(None)
    assert block(fresh, 1).size
    assert kept.size
    assert other.size
    with pytest.raises(ValueError, match=r"^\[set_memory_limit\] got -1; expected 0 or more bytes"):
        fresh.set_memory_limit(-1)


def test_a_limit_applies_to_streams(device: Device) -> None:
    own = Device.opened(device.name, device.backend)
    own.set_memory_limit(4 * MIB)
    with own.stream():
        kept = [block(own, 1) for _ in range(3)]
        with pytest.raises(OutOfMemoryError, match=r"set_memory_limit allows 4.00 MiB"):
            kept += [block(own, 1), block(own, 1)]
    assert len(kept) == 3


def test_a_captured_step_releases_the_memory_of_its_first_eager_run(fresh: Device) -> None:
    model = nn.Sequential(*[nn.Linear(64, 64, device=fresh) for _ in range(6)])
    optimizer = ph.optim.SGD(model.parameters(), lr=1e-3)

    @ph.jit
    def step(x: ph.Tensor) -> ph.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    x = ph.ones((4096, 64), device=fresh)
    step(x)
    eager = ph.memory_summary(fresh)
    assert eager.pooled > 4 * MIB
    step(x)
    recorded = ph.memory_summary(fresh)
    assert recorded.pooled <= MIB
    assert recorded.reserved < eager.reserved


def test_the_pool_costs_less_than_a_twentieth_of_a_step(fresh: Device) -> None:
    config = ph.models.GPTConfig(vocab_size=65, block_size=64, n_layer=1, n_head=2, n_embd=64)
    model = ph.models.GPT(config, device=fresh)
    optimizer = ph.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = ph.zeros((4, 64), dtype="int32", device=fresh)

    def step() -> float:
        begun = time.perf_counter()
        optimizer.zero_grad()
        model.loss(tokens, tokens).backward()
        optimizer.step()
        return time.perf_counter() - begun

    def pair() -> float:
        begun = time.perf_counter()
        for _ in range(1000):
            fresh.pool.take(4096)
        return (time.perf_counter() - begun) / 1000

    step()
    before = fresh.memory_stats()
    fastest = min(step() for _ in range(5))
    after = fresh.memory_stats()
    blocks = (after.allocations + after.reuses - before.allocations - before.reuses) / 5
    assert blocks * min(pair() for _ in range(5)) < 0.05 * fastest
