"""Measurements of devices: time, caching, and failures."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from device_fakes import CPU, CPUS, Clock, fake, info, names_of, with_backends

from polyhal.hal.core.plugins.entry_points import PluginOrigin
from polyhal.hal.core.plugins.probing import Candidate
from polyhal.hal.core.settings.file_lock import FileLock
from polyhal.hal.hookspecs import BackendSpec
from polyhal.hal.system.discovery.benchmark import BenchmarkTimes, BenchmarkUnavailableError

pytestmark = pytest.mark.usefixtures("speeds_folder")


EVERY = ["intel:0", "pocl:0", "wgpu:0", "numpy"]
"""Runs of one round."""


def files(tmp_path: Path) -> list[Path]:
    """Return the cached files."""
    return sorted((tmp_path / "cache" / "speeds").glob("*.json"))


# --- when devices are measured --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["numpy", "intel", "intel:0", "pocl:0", "np"])
def test_a_device_opened_by_name_is_not_measured(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    specs = [replace(s, aliases=("np",)) if s.name == "numpy" else s for s in CPUS.values()]
    assert with_backends(*specs, run_benchmark=clock).open(name).name.startswith(("numpy", "intel", "pocl"))
    monkeypatch.setenv("POLYHAL_DEVICE", name)
    found = with_backends(*specs, run_benchmark=clock)
    assert f"because POLYHAL_DEVICE={name}" in found.explain_default()
    assert clock.asked == []


def test_listing_devices_does_not_measure() -> None:
    clock = Clock()
    with_backends(*CPUS.values(), run_benchmark=clock).candidates()
    assert clock.asked == []


def test_a_measurement_is_announced_once_and_cached(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock(intel=3.0, pocl=1.0, numpy=2.0, wgpu=4.0)
    assert with_backends(*CPUS.values(), run_benchmark=clock).open(None).name == "pocl:0"
    assert clock.asked == 2 * EVERY
    assert capsys.readouterr().err.count("polyhal: measuring") == 1
    assert len(files(tmp_path)) == 4
    again = with_backends(*CPUS.values(), run_benchmark=clock)
    assert again.open(None).name == "pocl:0"
    assert "measured at 10.0x NumPy" in again.explain_default()
    assert len(clock.asked) == 8
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: fake("intel", info("Xeon", CPU, driver="2.0"), priority=50),
        lambda spec: fake("intel", info("Xeon Gold", CPU), priority=50),
        lambda spec: fake("other", info("Xeon", CPU), priority=50),
    ],
    ids=["driver", "device", "backend"],
)
def test_only_changed_devices_are_measured_again(change: Callable[[BackendSpec], BackendSpec]) -> None:
    with_backends(CPUS["intel"], CPUS["pocl"], run_benchmark=Clock(intel=1.0, pocl=2.0)).open(None)
    clock = Clock(intel=4.0, other=4.0, pocl=2.0)
    changed = change(CPUS["intel"])
    assert with_backends(changed, CPUS["pocl"], run_benchmark=clock).open(None).name == "pocl:0"
    assert clock.asked == [f"{changed.name}:0", f"{changed.name}:0", "pocl:0"], "and both again, in turns"


def test_a_new_version_of_the_plug_in_is_measured_again() -> None:
    asked = []
    for version in ("1.0", "1.0", "2.0"):
        clock = Clock(intel=1.0, numpy=2.0)
        found = with_backends(CPUS["numpy"], run_benchmark=clock)
        found.add(CPUS["intel"], PluginOrigin("intel = intel", "polyhal-intel", version))
        found.open(None)
        asked.append(clock.asked)
    assert [len(a) for a in asked] == [4, 0, 3]


def test_another_processor_is_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(intel=1.0, pocl=2.0, numpy=3.0, wgpu=4.0)
    with_backends(*CPUS.values(), run_benchmark=clock).open(None)
    monkeypatch.setattr("polyhal.hal.system.discovery.benchmark_cache.machine", lambda: "another processor, 64 cores")
    with_backends(*CPUS.values(), run_benchmark=clock).open(None)
    assert clock.asked == 4 * EVERY


def test_everything_can_be_measured_again() -> None:
    with_backends(*CPUS.values(), run_benchmark=Clock(intel=1.0, pocl=2.0)).open(None)
    clock = Clock(intel=2.0, pocl=0.5)
    found = with_backends(*CPUS.values(), run_benchmark=clock)
    assert found.open(None).name == "intel:0"
    assert found.refresh_benchmarks() == ""
    assert clock.asked == 2 * EVERY
    assert found.open(None).name == "pocl:0"
    assert with_backends(*CPUS.values(), run_benchmark=clock).open(None).name == "pocl:0"


def test_measuring_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    with_backends(*CPUS.values(), run_benchmark=Clock(pocl=0.1)).open(None)
    monkeypatch.setenv("POLYHAL_MEASURE_TIMEOUT", "0")
    clock = Clock()
    found = with_backends(*CPUS.values(), run_benchmark=clock)
    assert found.open(None).name == "intel:0"
    assert clock.asked == []
    assert found.explain_default().endswith("by priority and memory (not measured: POLYHAL_MEASURE_TIMEOUT is 0)")
    assert "POLYHAL_MEASURE_TIMEOUT is 0" in found.refresh_benchmarks()


@pytest.mark.parametrize("value", ["soon", "-1", "nan"])
def test_a_time_limit_that_is_not_a_number_is_rejected(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_MEASURE_TIMEOUT", value)
    with pytest.raises(ValueError, match="POLYHAL_MEASURE_TIMEOUT"):
        with_backends(*CPUS.values()).open(None)


def test_without_a_cache_folder_results_are_stored_in_the_users_temporary_folder(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in the place of the folder")
    clock = Clock(intel=3.0, pocl=1.0)
    found = with_backends(*CPUS.values(), run_benchmark=clock)
    assert found.open(None).name == "pocl:0"
    (folder,) = tmp_path.glob("polyhal-*")
    assert len(list(folder.glob("*.json"))) == 4
    again = with_backends(*CPUS.values(), run_benchmark=(second := Clock()))
    assert again.open(None).name == "pocl:0"
    assert second.asked == []
    assert again.explain_default() == found.explain_default()


def test_without_any_storage_each_process_measures_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file in the place of the folder")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "cache"))
    for _ in range(2):
        clock = Clock(intel=3.0, pocl=1.0)
        found = with_backends(*CPUS.values(), run_benchmark=clock)
        assert found.open(None).name == "pocl:0"
        found.set_default(None)
        assert found.open(None).name == "pocl:0"
        assert clock.asked == 2 * EVERY


def test_results_of_other_users_in_the_temporary_folder_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file in the place of the folder")
    with_backends(*CPUS.values(), run_benchmark=Clock(pocl=0.1)).open(None)
    monkeypatch.setattr(
        "polyhal.hal.core.settings.trust.distrust", lambda folder: "" if folder.name == "speeds" else "of others"
    )
    clock = Clock()
    assert with_backends(*CPUS.values(), run_benchmark=clock).open(None).name == "intel:0"
    assert clock.measured == ["intel:0", "pocl:0", "wgpu:0", "numpy"]


# --- failures -------------------------------------------------------------------------------------------------------


def test_a_device_whose_measurement_fails_comes_last_and_the_reason_is_stored(tmp_path: Path) -> None:
    clock = Clock(intel=RuntimeError("result 0 differs from NumPy's"), pocl=4.0, numpy=2.0, wgpu=float("nan"))
    found = with_backends(*CPUS.values(), run_benchmark=clock)
    assert found.open(None).name == "numpy"
    assert names_of(found.candidates()) == ["numpy", "pocl:0", "intel:0", "wgpu:0"]
    again = with_backends(*CPUS.values(), run_benchmark=clock)
    assert again.open(None).name == "numpy"
    assert clock.asked == ["intel:0", "pocl:0", "wgpu:0", "numpy", "pocl:0", "numpy"]
    why, repeat = again.explain_default(), "polyhal devices --measure repeats it"
    assert (
        f"intel:0 failed when it was measured (RuntimeError: result 0 differs from NumPy's; {repeat}); pocl:0 takes"
        in why
    )
    assert "wgpu:0 failed when it was measured (ValueError: invalid times" in why
    problems = {c.name: speed.problem for c in again.candidates() if (speed := again.benchmarks.lookup(c)) is not None}
    assert "differs from NumPy" in problems["intel:0"]
    assert "invalid times" in problems["wgpu:0"]


def test_devices_that_may_change_the_choice_are_measured_again_until_none_is_faster() -> None:
    """The fastest run counts. NumPy takes 9 times as long as the fastest and is not measured again."""
    asked: list[str] = []

    def measure(candidate: Candidate, limit: float) -> BenchmarkTimes:
        asked.append(candidate.name)
        first = {"intel:0": 2.5, "pocl:0": 1.0, "numpy": 9.0, "wgpu:0": 1.2}[candidate.name]
        second = {"intel:0": 0.8}
        if asked.count(candidate.name) == 1:
            return BenchmarkTimes(first, 10.0, 512)
        if candidate.name not in second:
            raise RuntimeError("busy")
        return BenchmarkTimes(second[candidate.name], 10.0, 512)

    found = with_backends(*CPUS.values(), run_benchmark=measure)
    assert found.open(None).name == "intel:0"
    assert asked[4:] == 2 * ["intel:0", "pocl:0", "wgpu:0"]
    seconds = {c.name: speed.seconds for c in found.candidates() if (speed := found.benchmarks.lookup(c)) is not None}
    assert seconds == {"intel:0": 0.8, "pocl:0": 1.0, "numpy": 9.0, "wgpu:0": 1.2}


def test_a_failure_is_tried_again_after_a_day(tmp_path: Path) -> None:
    with_backends(*CPUS.values(), run_benchmark=Clock(intel=RuntimeError("busy"))).open(None)
    (failed,) = (f for f in files(tmp_path) if "busy" in f.read_text())
    kept = json.loads(failed.read_text())
    kept["speed"]["date"] = (datetime.now(UTC) - timedelta(days=2)).isoformat()
    failed.write_text(json.dumps(kept))
    clock = Clock(intel=0.5)
    assert with_backends(*CPUS.values(), run_benchmark=clock).open(None).name == "intel:0"
    assert clock.asked == ["intel:0", *EVERY]


def test_if_every_measurement_fails_priority_decides() -> None:
    broken = {name: RuntimeError("no") for name in CPUS}
    found = with_backends(*CPUS.values(), run_benchmark=Clock(**broken))
    assert found.open(None).name == "intel:0"
    assert found.explain_default().endswith("the first of 4 CPU devices, by priority and memory")


def test_if_measuring_is_impossible_priority_decides_and_nothing_is_stored(tmp_path: Path) -> None:
    clock = Clock(intel=BenchmarkUnavailableError("there is no Python to start a process with"))
    found = with_backends(*CPUS.values(), run_benchmark=clock)
    assert found.open(None).name == "intel:0"
    assert clock.asked == ["intel:0"]
    assert "not measured: there is no Python" in found.explain_default()
    assert files(tmp_path) == []


def _edited(**values: Any) -> Callable[[Path], object]:
    """Return a function that changes the figures of a file."""

    def edit(file: Path) -> None:
        kept = json.loads(file.read_text())
        kept["speed"] |= values
        file.write_text(json.dumps(kept))

    return edit


def _foreign(file: Path) -> None:
    kept = json.loads(file.read_text())
    kept["key"]["driver"] = "another"
    file.write_text(json.dumps(kept))


@pytest.mark.parametrize(
    "damage",
    [
        lambda f: f.write_bytes(f.read_bytes()[: f.stat().st_size // 2]),
        lambda f: f.write_bytes(b""),
        lambda f: f.write_bytes(b"\xff\xfe\x00" * 100),
        lambda f: f.write_text("[1, 2]"),
        lambda f: f.write_text("null"),
        lambda f: f.write_text("{}"),
        _edited(seconds=float("nan")),
        _edited(seconds=-1.0),
        _edited(seconds="fast"),
        _edited(numpy_seconds=0),
        _edited(date="yesterday"),
        _edited(date=None),
        _edited(date="2026-01-01"),
        _edited(surprise=1),
        _foreign,
        lambda f: (f.unlink(), f.mkdir()),
    ],
    ids=[
        "cut",
        "empty",
        "binary",
        "list",
        "null",
        "bare",
        "nan",
        "negative",
        "text",
        "zero",
        "date",
        "no date",
        "no time zone",
        "unknown field",
        "foreign",
        "folder",
    ],
)
def test_an_unusable_file_is_measured_again(damage: Callable[[Path], object], tmp_path: Path) -> None:
    seconds = {"intel": 2.0, "pocl": 1.0, "numpy": 3.0, "wgpu": 4.0}
    with_backends(*CPUS.values(), run_benchmark=Clock(**seconds)).open(None)
    (damaged,) = (f for f in files(tmp_path) if json.loads(f.read_text())["key"]["backend"] == "pocl")
    damage(damaged)
    clock = Clock(**seconds)
    assert with_backends(*CPUS.values(), run_benchmark=clock).open(None).name == "pocl:0"
    assert clock.asked == ["pocl:0", *EVERY]
    if damaged.is_file():
        assert with_backends(*CPUS.values(), run_benchmark=(third := Clock())).open(None).name == "pocl:0"
        assert third.asked == []


# --- several processes ----------------------------------------------------------------------------------------------


def test_processes_that_start_together_measure_once(tmp_path: Path) -> None:
    clock = Clock(pocl=0.5)

    def slow(candidate: Candidate, limit: float) -> BenchmarkTimes:
        time.sleep(0.05)
        return clock(candidate, limit)

    chosen: list[str] = []

    def start() -> None:
        chosen.append(with_backends(*CPUS.values(), run_benchmark=slow).open(None).name)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert chosen == ["pocl:0"] * 4
    assert clock.asked == 2 * EVERY
    assert not (tmp_path / "cache" / "speeds" / "measuring.lock").exists()


@pytest.mark.parametrize("hangs", [False, True])
def test_the_lock_of_a_process_that_died_or_hangs_is_broken(tmp_path: Path, hangs: bool) -> None:
    folder = tmp_path / "cache" / "speeds"
    folder.mkdir(parents=True)
    lock = FileLock(folder / "measuring.lock")
    if hangs:
        assert lock.acquire()
        os.utime(lock.path, (time.time() - 3600,) * 2)
    else:
        lock.path.touch()
    clock = Clock(pocl=0.5)
    assert with_backends(*CPUS.values(), run_benchmark=clock).open(None).name == "pocl:0"
    assert len(clock.measured) == 4


def test_a_process_that_waits_for_another_prints_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("polyhal.hal.system.discovery.benchmark_cache._SILENCE", 0.1)
    folder = tmp_path / "cache" / "speeds"
    folder.mkdir(parents=True)
    lock = FileLock(folder / "measuring.lock")
    assert lock.acquire()
    threading.Timer(0.5, lock.release).start()
    assert with_backends(*CPUS.values(), run_benchmark=Clock(pocl=0.5)).open(None).name == "pocl:0"
    assert capsys.readouterr().err.count("waiting for another process that measures devices") == 1
