"""A disk that is full at any byte, and folders that cannot be written: a clear error, the last good file, nothing left."""

from __future__ import annotations

import math
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal.backends.common.launching.disk_cache import DiskCache
from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.core.kernels import tuning
from polyhal.hal.core.kernels.call_log import KernelCall, KernelCallLog
from polyhal.hal.core.kernels.tuning import TunedChoice
from polyhal.hal.core.settings import json_store
from polyhal.training import RunFolder
from polyhal.training.folder import RunFolderError
from polyhal.training.metrics import Metrics, MetricsRow

_NOBODY = 65534
INFO = DeviceInfo("opencl", "a device", DeviceType.GPU, 2**30, "driver 1", "id")


@contextmanager
def full_after(nbytes: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes. What is written up to there is written, as on a disk that becomes full."""
    resource = pytest.importorskip("resource")
    old, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)


def content(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def save(name: str) -> Callable[[Path, int], None]:
    def write(folder: Path, number: int) -> None:
        ph.save({"x": np.full(20, number, np.int16), "number": number}, folder / name)

    return write


def read(name: str) -> Callable[[Path], Any]:
    return lambda folder: ph.load(folder / name, "numpy")["number"]


WRITERS: dict[str, tuple[Callable[[Path, int], None], Callable[[Path], Any]]] = {
    "checkpoint file": (save("x.safetensors"), read("x.safetensors")),
    "checkpoint folder": (save("x"), read("x")),
    "JSON": (
        lambda folder, number: json_store.write(folder / "x.json", {"schema": 1, "number": number, "text": "x" * 200}),
        lambda folder: json_store.read(folder / "x.json", 1)["number"],
    ),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_disk_that_is_full_at_any_byte_leaves_the_last_good_file(name: str, tmp_path: Path) -> None:
    write, number = WRITERS[name]
    write(tmp_path, 1)
    before = content(tmp_path)
    largest = max(map(len, before.values()))
    for size in range(largest):
        with full_after(size), pytest.raises(OSError, match="File too large"):
            write(tmp_path, 2)
        assert content(tmp_path) == before, f"full after {size} bytes"
    assert number(tmp_path) == 1
    write(tmp_path, 3)
    assert number(tmp_path) == 3
    with full_after(10), pytest.raises(OSError, match="File too large"):
        write(tmp_path / "new", 2)
    assert content(tmp_path / "new") == {}


def test_caches_go_on_when_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path))
    cache, log = DiskCache(tmp_path / "programs"), KernelCallLog(INFO)
    good, bad = DiskCache.key(["good"]), DiskCache.key(["bad"])
    cache.store(good, b"x" * 50)
    log.add(KernelCall("first", (), (), {}), ["first"])
    for size in range(0, 100, 3):
        with full_after(size):
            cache.store(bad, bytes(200))
        assert "File too large" in cache.failure
        assert cache.load(bad) is None
        assert cache.load(good) == b"x" * 50
        with full_after(100 + size):
            log.add(KernelCall(f"lost {size}", (), (), {"text": "x" * 200}), [f"lost {size}"])
    assert len(content(tmp_path / "programs")) == 1
    log.add(KernelCall("last", (), (), {}), ["last"])
    assert {"first", "last"} <= {c.op for c in KernelCallLog(INFO).calls()}


def test_metrics_that_a_full_disk_has_cut_off(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "metrics.jsonl")
    rows = [MetricsRow(step, 0.1, math.inf, None, 0.1, 5.0) for step in (10, 20)]
    metrics.log(rows[0].step, rows[0].values)
    size = metrics.path.stat().st_size
    for extra in range(size):
        with full_after(size + extra), pytest.raises(OSError, match="File too large"):
            metrics.log(rows[1].step, rows[1].values)
        assert metrics.rows() == rows[:1]
        before = content(tmp_path)
        with full_after(size - 1), pytest.raises(OSError, match="File too large"):
            metrics.cut(10)
        assert content(tmp_path) == before
        metrics.cut(10)
        assert metrics.path.stat().st_size == size
    metrics.log(rows[1].step, rows[1].values)
    assert metrics.rows() == rows


def test_folders_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file exists where the folder should be; no user is exempt from that, as from permissions."""
    blocked = tmp_path / "file"
    blocked.write_text("mine")
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(blocked))
    for write, _ in WRITERS.values():
        with pytest.raises(OSError, match=r"(File exists|Not a directory).*file"):
            write(blocked, 1)
    choice = TunedChoice("tile", "x", {}, 1.0, "2026-01-01")
    with pytest.raises(OSError, match="file"):
        tuning.add(INFO, {choice.key: choice})
    assert tuning.load(INFO) == {}
    refused = pytest.raises(RunFolderError, match=r"cannot be written: (File exists|Not a directory)")
    with refused as found, RunFolder(blocked / "run").reserved():
        pass
    assert "use a --save-dir that can be written" in str(found.value)
    assert "--resume" not in str(found.value)  # there is no checkpoint
    cache = DiskCache(blocked / "programs")
    cache.store("key", b"x")
    assert cache.failure
    assert cache.load("key") is None
    log = KernelCallLog(INFO)
    log.add(KernelCall("op", (), (), {}), ["p"])
    assert log.calls() == []
    assert content(tmp_path) == {"file": b"mine"}


def test_a_read_only_folder() -> None:
    with tempfile.TemporaryDirectory() as outer, as_the_owner_of(Path(outer)):
        folder = Path(outer) / "folder"
        folder.mkdir()
        for write, _ in WRITERS.values():
            write(folder, 1)
        before = content(folder)
        for closed in (folder / "x", folder):
            closed.chmod(0o555)
        try:
            for write, number in WRITERS.values():
                with pytest.raises(PermissionError, match="folder"):
                    write(folder, 2)
                assert number(folder) == 1
            assert content(folder) == before
        finally:
            for closed in (folder, folder / "x"):
                closed.chmod(0o755)


@contextmanager
def as_the_owner_of(folder: Path) -> Iterator[None]:
    """Permissions do not bind the root user: give a folder to a user without rights, and be that user."""
    if not hasattr(os, "geteuid") or os.geteuid():
        yield
        return
    os.chown(folder, _NOBODY, _NOBODY)
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
