"""Caches that four processes read and write at the same time: nothing is lost, and nothing is read that was not written."""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from random import Random

import pytest

from polyhal.backends.common.launching.disk_cache import DiskCache
from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.core.kernels import tuning
from polyhal.hal.core.kernels.call_log import KernelCall, KernelCallLog
from polyhal.hal.core.kernels.library import KernelOverrides, Verdict
from polyhal.hal.core.kernels.tuning import TunedChoice
from polyhal.hal.core.settings import json_store

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it forks")

PROCESSES, ROUNDS, PROGRAMS = 4, 25, 20
INFO = DeviceInfo("opencl", "a device", DeviceType.GPU, 2**30, "driver 1", "id")


def program(number: int) -> bytes:
    return Random(number).randbytes(5000)


def hammer(folder: str, me: int) -> None:
    os.environ["POLYHAL_CACHE_DIR"] = folder
    random = Random(me)
    cache = DiskCache(Path(folder) / "programs", limit=60_000)
    log, overrides = KernelCallLog(INFO), KernelOverrides(INFO)
    for i in range(ROUNDS):
        for _ in range(PROGRAMS):
            number = random.randrange(PROGRAMS)
            key = DiskCache.key([str(number)])
            assert cache.load(key) in (None, program(number))
            if random.random() < 0.3:
                cache.store(key, program(number))
        choice = TunedChoice("tile", f"{me} {i}", {"rows": i}, 1.5, "2026-01-01")
        tuning.add(INFO, {choice.key: choice})
        overrides.store(f"{me} {i}", Verdict("digest", "", 1.0, "2026-01-01"))
        log.add(KernelCall(f"op {me} {i}", (), (), {"text": "x" * 1000}), [f"{me} {i}"])
        json_store.write(Path(folder) / "last.json", {"schema": 1, "numbers": [me * 1000 + i] * 500})
        assert len(set(json_store.read(Path(folder) / "last.json", 1)["numbers"])) == 1
    assert not cache.failure


def test_caches_are_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.reliability.victims"])
    processes = [context.Process(target=hammer, args=(str(tmp_path), me)) for me in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
    assert [p.exitcode for p in processes] == [0] * PROCESSES
    everything = {f"{me} {i}" for me in range(PROCESSES) for i in range(ROUNDS)}
    assert {shape for _, shape in tuning.load(INFO)} == everything
    assert set(KernelOverrides(INFO).verdicts()) == everything
    assert {c.op.removeprefix("op ") for c in KernelCallLog(INFO).calls()} == everything
    assert list(tmp_path.rglob(".*")) == []
