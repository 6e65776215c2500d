"""Which device is the default: every order of speeds, what is measured and when, and what is remembered."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_fakes import fake, info, with_backends
from hypothesis import given
from hypothesis import strategies as st

from polyhal.backends.numpy.backend import CoreNumpyBackend, array, create
from polyhal.hal.capabilities import DeviceType
from polyhal.hal.device import Device
from polyhal.hal.discovery import benchmark, ranking
from polyhal.hal.discovery.benchmark import BenchmarkTimes, BenchmarkUnavailableError, WorkloadSize
from polyhal.hal.discovery.benchmark_cache import BenchmarkResult
from polyhal.hal.discovery.plugins import PluginOrigin
from polyhal.hal.discovery.probing import Candidate
from polyhal.hal.discovery.registry import Registry
from polyhal.hal.errors import BackendError
from polyhal.hal.hookspecs import BackendSpec
from polyhal.hal.layout import Ref

GPU, IGPU, ACCELERATOR, CPU = DeviceType.GPU, DeviceType.INTEGRATED_GPU, DeviceType.ACCELERATOR, DeviceType.CPU

CPUS = {
    "intel": fake("intel", info("Xeon", CPU), priority=50),
    "pocl": fake("pocl", info("pthread-Xeon", CPU), priority=50),
    "numpy": fake("numpy", info("NumPy on x86_64", CPU, selector=""), priority=-100),
    "wgpu": fake("wgpu", info("llvmpipe (LLVM 15)", CPU), priority=40),
}
CARDS = {
    "card": fake("card", info("Big card", GPU)),
    "integrated": fake("integrated", info("Small chip", IGPU)),
    "accelerator": fake("accelerator", info("Odd board", ACCELERATOR)),
}
ALL = CPUS | CARDS


class Clock:
    """Stands for measuring: hands out the seconds it was given, and counts."""

    def __init__(self, **seconds: float | Exception) -> None:
        self.seconds = seconds
        self.asked: list[str] = []

    def __call__(self, candidate: Candidate, limit: float) -> BenchmarkTimes:
        assert limit > 0
        self.asked.append(candidate.name)
        found = self.seconds.get(candidate.backend.name, 1.0)
        if isinstance(found, Exception):
            raise found
        return BenchmarkTimes(found, 10.0, 512)


@pytest.fixture(autouse=True)
def _measuring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring is on, and nothing is remembered."""
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("POLYHAL_MEASURE_TIMEOUT", "5")
    for name in ("POLYHAL_DEVICE", "POLYHAL_DISABLE"):
        monkeypatch.delenv(name, raising=False)


def files(tmp_path: Path) -> list[Path]:
    """What is remembered."""
    return sorted((tmp_path / "cache" / "speeds").glob("*.json"))


# --- the order ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cards", [c for n in range(4) for c in itertools.combinations(CARDS, n)], ids="+".join)
def test_the_default_for_every_order_of_the_cpu_devices_beside_every_set_of_cards(
    cards: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, order in enumerate(itertools.permutations(CPUS)):
        monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path / str(number)))
        clock = Clock(**{name: 1.0 + i for i, name in enumerate(order)})
        chosen = (
            with_backends(*(ALL[n] for n in (*cards, *order[::-1])), run_benchmark=clock)
            .open(None)
            .name.partition(":")[0]
        )
        if cards:
            assert chosen == next(n for n in ("card", "integrated", "accelerator") if n in cards)
            assert clock.asked == []
        else:
            assert chosen == order[0]
            assert len(clock.asked) == len(CPUS)


def test_the_order_of_all_devices_for_every_order_of_speeds() -> None:
    listed = [c for spec in ALL.values() for c in with_backends(spec).candidates()]
    for seconds in itertools.permutations(range(1, len(listed) + 1)):
        speeds = {c.name: BenchmarkResult(s, 10.0, 512, "2026-01-01") for c, s in zip(listed, seconds, strict=True)}
        ordered = [c.backend.name for c in ranking.rank(listed, lambda c, speeds=speeds: speeds[c.name])]
        assert ordered[:3] == ["card", "integrated", "accelerator"]
        taken = [speeds[c.name].seconds for name in ordered[3:] for c in listed if c.backend.name == name]
        assert taken == sorted(taken)


outcomes = st.one_of(
    st.none(),
    st.just(BenchmarkResult(0.0, 0.0, 0, "2026-01-01", "the driver crashed")),
    st.floats(1e-9, 1e3).map(lambda s: BenchmarkResult(s, 10.0, 512, "2026-01-01")),
)


@given(st.lists(outcomes, min_size=4, max_size=4), st.permutations(list(CPUS)))
def test_measured_devices_come_before_unmeasured_ones_and_these_before_failed_ones(
    found: list[BenchmarkResult | None], names: list[str]
) -> None:
    listed = [c for name in names for c in with_backends(CPUS[name]).candidates()]
    speeds = {c.name: s for c, s in zip(listed, found, strict=True)}
    ordered = ranking.rank(listed, lambda c: speeds[c.name])
    states = [
        (1, 0.0) if s is None else (2, 0.0) if s.problem else (0, s.seconds) for s in map(speeds.get, names_of(ordered))
    ]
    assert states == sorted(states)
    unmeasured = [c.backend.priority for c in ordered if speeds[c.name] is None]
    assert unmeasured == sorted(unmeasured, reverse=True)


def names_of(candidates: list[Candidate]) -> list[str]:
    return [c.name for c in candidates]


def test_numpy_is_the_default_when_nothing_else_is_there() -> None:
    clock = Clock()
    found = with_backends(CPUS["numpy"], run_benchmark=clock)
    assert found.open(None).name == "numpy"
    assert found.explain_default() == "numpy (NumPy on x86_64): the only device found"
    assert clock.asked == []


def test_a_software_rasteriser_is_a_cpu_whatever_it_claims() -> None:
    liar = fake("wgpu", info("llvmpipe (LLVM 15.0.6, 256 bits)", GPU), priority=90)
    found = with_backends(liar, CPUS["intel"], run_benchmark=Clock(wgpu=2.0, intel=1.0))
    assert found.open(None).name == "intel:0"
    assert found.open("cpu:1").name == "wgpu:0"


def test_several_cards_are_measured_and_the_faster_wins() -> None:
    specs = fake("a", info("Card one", GPU), priority=90), fake("b", info("Card two", GPU))
    clock = Clock(a=2.0, b=1.0)
    found = with_backends(*specs, CPUS["intel"], CPUS["numpy"], run_benchmark=clock)
    assert found.open(None).name == "b:0"
    assert clock.asked == ["a:0", "b:0"]
    assert "the fastest of 2 GPUs, measured at 10.0x NumPy on 20" in found.explain_default()


def test_identical_cards_are_not_measured() -> None:
    cards = [info("Card", GPU, selector=str(i), id=f"pci/{i}") for i in range(8)]
    clock = Clock()
    found = with_backends(fake("a", *cards), CPUS["numpy"], run_benchmark=clock)
    assert found.open(None).name == "a:0"
    assert clock.asked == []
    assert found.explain_default() == "a:0 (Card): the first of 8 GPUs, by priority and memory"


def test_where_no_card_can_be_opened_the_cpu_devices_are_measured() -> None:
    clock = Clock(pocl=1.0, intel=2.0)
    found = with_backends(fake("a", info("Card", GPU), refuse=["0"]), CPUS["intel"], CPUS["pocl"], run_benchmark=clock)
    assert found.open(None).name == "pocl:0"
    assert found.explain_default() == (
        "pocl:0 (pthread-Xeon): a:0 could not be opened; the fastest of 2 CPU devices, "
        f"measured at 10.0x NumPy on {datetime.now(UTC):%Y-%m-%d}"
    )


# --- one card, several backends -------------------------------------------------------------------------------------


def test_a_card_that_two_backends_see_by_one_identity_is_one_device() -> None:
    through_opencl = fake("opencl", info("gfx1030", GPU, id="pci/0000:03:00.0"), priority=50)
    through_vulkan = fake("wgpu", info("AMD Radeon RX 6800", GPU, id="pci/0000:03:00.0"), priority=40)
    clock = Clock(opencl=2.0, wgpu=1.0)
    found = with_backends(through_opencl, through_vulkan, CPUS["numpy"], run_benchmark=clock)
    assert found.open("gpu").name == "wgpu:0"
    assert [names_of(g) for g in ranking.group_by_card(found.candidates())] == [["wgpu:0", "opencl:0"], ["numpy"]]
    assert "the fastest of the 2 backends that see this GPU" in found.explain_default()


def test_a_third_backend_joins_by_name_two_that_share_an_identity() -> None:
    cards = ("uuid/0", "uuid/1")
    shared = [fake(n, *[info("Card", GPU, selector=str(k), id=i) for k, i in enumerate(cards)]) for n in ("x", "y")]
    other = fake("z", *[info("Card", GPU, selector=str(k), id=f"vulkan card {k}") for k in range(2)])
    groups = ranking.group_by_card(with_backends(*shared, other).candidates())
    assert sorted(sorted(names_of(g)) for g in groups) == [["x:0", "y:0", "z:0"], ["x:1", "y:1", "z:1"]]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (("NVIDIA H200", "NVIDIA Corporation"), ("NVIDIA H200", "")),
        (("Intel(R) UHD Graphics 620", "Intel(R) Corporation"), ("Intel(R) UHD Graphics 620 (KBL GT2)", "Intel")),
        (("NVIDIA GeForce RTX 4090", "NVIDIA"), ("nvidia geforce rtx 4090", "nvidia")),
    ],
)
def test_cards_are_known_by_name_where_identities_say_nothing(a: tuple[str, str], b: tuple[str, str]) -> None:
    def cards(backend: str, name: str, vendor: str) -> BackendSpec:
        return fake(backend, *(info(name, GPU, selector=str(i), vendor=vendor, id=f"{backend}/{i}") for i in range(2)))

    found = with_backends(cards("opencl", *a), cards("wgpu", *b), run_benchmark=Clock(opencl=2.0, wgpu=1.0))
    assert found.open("gpu:0").name == "wgpu:0"
    assert found.open("gpu:1").name == "wgpu:1"
    groups = [names_of(g) for g in ranking.group_by_card(found.candidates())]
    assert groups == [["wgpu:0", "opencl:0"], ["wgpu:1", "opencl:1"]]


def test_different_cards_of_one_name_stay_apart() -> None:
    first = fake("opencl", info("H200", GPU, id="pci/0000:01:00.0"))
    second = fake("cuda", info("H200", GPU, id="pci/0000:02:00.0"))
    assert len(ranking.group_by_card(with_backends(first, second).candidates())) == 2


def test_the_drivers_of_one_processor_are_devices_of_their_own() -> None:
    same = [fake(name, info("Xeon", CPU, id=f"cpu/{name}")) for name in ("intel", "pocl")]
    assert len(ranking.group_by_card(with_backends(*same).candidates())) == 2


def test_a_card_that_one_backend_cannot_open_is_opened_by_the_other() -> None:
    card = info("Card", GPU, id="pci/0000:03:00.0")
    found = with_backends(
        fake("a", card, refuse=["0"]), fake("b", card), CPUS["numpy"], run_benchmark=Clock(a=1.0, b=2.0)
    )
    assert found.open("gpu").name == "b:0"


# --- when it is measured --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["numpy", "intel", "intel:0", "pocl:0", "np"])
def test_a_device_asked_for_by_name_is_not_measured(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    specs = [replace(s, aliases=("np",)) if s.name == "numpy" else s for s in CPUS.values()]
    assert with_backends(*specs, run_benchmark=clock).open(name).name.startswith(("numpy", "intel", "pocl"))
    monkeypatch.setenv("POLYHAL_DEVICE", name)
    found = with_backends(*specs, run_benchmark=clock)
    assert f"because POLYHAL_DEVICE={name}" in found.explain_default()
    assert clock.asked == []


def test_listing_devices_measures_nothing() -> None:
    clock = Clock()
    with_backends(*CPUS.values(), run_benchmark=clock).candidates()
    assert clock.asked == []


def test_a_measurement_is_announced_once_and_remembered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock(intel=3.0, pocl=1.0, numpy=2.0, wgpu=4.0)
    assert with_backends(*CPUS.values(), run_benchmark=clock).open(None).name == "pocl:0"
    assert sorted(clock.asked) == ["intel:0", "numpy", "pocl:0", "wgpu:0"]
    assert capsys.readouterr().err.count("polyhal: measuring") == 1
    assert len(files(tmp_path)) == 4
    again = with_backends(*CPUS.values(), run_benchmark=clock)
    assert again.open(None).name == "pocl:0"
    assert "measured at 10.0x NumPy" in again.explain_default()
    assert len(clock.asked) == 4
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
def test_what_has_changed_is_measured_again_and_nothing_else(change: Callable[[BackendSpec], BackendSpec]) -> None:
    with_backends(CPUS["intel"], CPUS["pocl"], run_benchmark=Clock(intel=1.0, pocl=2.0)).open(None)
    clock = Clock(intel=3.0, other=3.0)
    changed = change(CPUS["intel"])
    assert with_backends(changed, CPUS["pocl"], run_benchmark=clock).open(None).name == "pocl:0"
    assert clock.asked == [f"{changed.name}:0"]


def test_a_new_version_of_the_plug_in_is_measured_again() -> None:
    asked = []
    for version in ("1.0", "1.0", "2.0"):
        clock = Clock(intel=1.0, numpy=2.0)
        found = with_backends(CPUS["numpy"], run_benchmark=clock)
        found.add(CPUS["intel"], PluginOrigin("intel = intel", "polyhal-intel", version))
        found.open(None)
        asked.append(clock.asked)
    assert [len(a) for a in asked] == [2, 0, 1]


def test_another_processor_is_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(intel=1.0, pocl=2.0, numpy=3.0, wgpu=4.0)
    with_backends(*CPUS.values(), run_benchmark=clock).open(None)
    monkeypatch.setattr("polyhal.hal.discovery.benchmark_cache.machine", lambda: "another processor, 64 cores")
    with_backends(*CPUS.values(), run_benchmark=clock).open(None)
    assert len(clock.asked) == 8


def test_everything_can_be_measured_again() -> None:
    with_backends(*CPUS.values(), run_benchmark=Clock(intel=1.0, pocl=2.0)).open(None)
    clock = Clock(intel=2.0, pocl=0.5)
    found = with_backends(*CPUS.values(), run_benchmark=clock)
    assert found.open(None).name == "intel:0"
    assert found.refresh_benchmarks() == ""
    assert sorted(clock.asked) == ["intel:0", "numpy", "pocl:0", "wgpu:0"]
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
def test_a_time_limit_that_is_no_number_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_MEASURE_TIMEOUT", value)
    with pytest.raises(ValueError, match="POLYHAL_MEASURE_TIMEOUT"):
        with_backends(*CPUS.values()).open(None)


def test_what_could_not_be_remembered_is_not_measured(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in the place of the folder")
    clock = Clock()
    found = with_backends(*CPUS.values(), run_benchmark=clock)
    assert found.open(None).name == "intel:0"
    assert clock.asked == []
    assert "not measured" in found.explain_default()


# --- failures -------------------------------------------------------------------------------------------------------


def test_a_device_whose_measurement_fails_comes_last_and_the_reason_is_kept(tmp_path: Path) -> None:
    clock = Clock(intel=RuntimeError("result 0 differs from NumPy's"), pocl=3.0, numpy=2.0, wgpu=float("nan"))
    found = with_backends(*CPUS.values(), run_benchmark=clock)
    assert found.open(None).name == "numpy"
    assert names_of(found.candidates()) == ["numpy", "pocl:0", "intel:0", "wgpu:0"]
    again = with_backends(*CPUS.values(), run_benchmark=clock)
    assert again.open(None).name == "numpy"
    assert len(clock.asked) == 4
    problems = {c.name: speed.problem for c in again.candidates() if (speed := again.benchmarks.lookup(c)) is not None}
    assert "differs from NumPy" in problems["intel:0"]
    assert "the clock went wrong" in problems["wgpu:0"]


def test_devices_about_as_fast_as_the_fastest_get_a_second_look() -> None:
    asked: list[str] = []

    def measure(candidate: Candidate, limit: float) -> BenchmarkTimes:
        asked.append(candidate.name)
        first = {"intel:0": 1.2, "pocl:0": 1.0, "numpy": 2.0, "wgpu:0": 1.3}[candidate.name]
        second = {"intel:0": 0.8, "pocl:0": 1.1}
        if asked.count(candidate.name) == 1:
            return BenchmarkTimes(first, 10.0, 512)
        if candidate.name not in second:
            raise RuntimeError("busy")
        return BenchmarkTimes(second[candidate.name], 10.0, 512)

    found = with_backends(*CPUS.values(), run_benchmark=measure)
    assert found.open(None).name == "intel:0"
    assert asked[4:] == ["intel:0", "pocl:0", "wgpu:0"]
    seconds = {c.name: speed.seconds for c in found.candidates() if (speed := found.benchmarks.lookup(c)) is not None}
    assert seconds == {"intel:0": 0.8, "pocl:0": 1.0, "numpy": 2.0, "wgpu:0": 1.3}


def test_a_failure_is_tried_again_after_a_day(tmp_path: Path) -> None:
    with_backends(*CPUS.values(), run_benchmark=Clock(intel=RuntimeError("busy"))).open(None)
    (failed,) = (f for f in files(tmp_path) if "busy" in f.read_text())
    kept = json.loads(failed.read_text())
    kept["speed"]["date"] = (datetime.now(UTC) - timedelta(days=2)).isoformat()
    failed.write_text(json.dumps(kept))
    clock = Clock(intel=0.5)
    assert with_backends(*CPUS.values(), run_benchmark=clock).open(None).name == "intel:0"
    assert clock.asked == ["intel:0"]


def test_where_every_measurement_fails_priority_decides() -> None:
    broken = {name: RuntimeError("no") for name in CPUS}
    found = with_backends(*CPUS.values(), run_benchmark=Clock(**broken))
    assert found.open(None).name == "intel:0"
    assert found.explain_default().endswith("the first of 4 CPU devices, by priority and memory")


def test_where_nothing_can_be_measured_priority_decides_and_nothing_is_kept(tmp_path: Path) -> None:
    clock = Clock(intel=BenchmarkUnavailableError("there is no Python to start a process with"))
    found = with_backends(*CPUS.values(), run_benchmark=clock)
    assert found.open(None).name == "intel:0"
    assert clock.asked == ["intel:0"]
    assert "not measured: there is no Python" in found.explain_default()
    assert files(tmp_path) == []


def _edited(**values: Any) -> Callable[[Path], object]:
    """Changes the figures of a file."""

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
        "cut", "empty", "binary", "list", "null", "bare", "nan", "negative", "text", "zero", "date", "no date",
        "no time zone", "unknown field", "foreign", "folder",
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_measured_again(damage: Callable[[Path], object], tmp_path: Path) -> None:
    seconds = {"intel": 2.0, "pocl": 1.0, "numpy": 3.0, "wgpu": 4.0}
    with_backends(*CPUS.values(), run_benchmark=Clock(**seconds)).open(None)
    (damaged,) = (f for f in files(tmp_path) if json.loads(f.read_text())["key"]["backend"] == "pocl")
    damage(damaged)
    clock = Clock(**seconds)
    assert with_backends(*CPUS.values(), run_benchmark=clock).open(None).name == "pocl:0"
    assert clock.asked == ["pocl:0"]
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
    assert sorted(clock.asked) == ["intel:0", "numpy", "pocl:0", "wgpu:0"]
    assert not (tmp_path / "cache" / "speeds" / "measuring.lock").exists()


def test_the_lock_of_a_process_that_died_is_broken(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "speeds"
    folder.mkdir(parents=True)
    lock = folder / "measuring.lock"
    lock.touch()
    os.utime(lock, (time.time() - 3600,) * 2)
    clock = Clock(pocl=0.5)
    assert with_backends(*CPUS.values(), run_benchmark=clock).open(None).name == "pocl:0"
    assert len(clock.asked) == 4


def test_whoever_waits_for_another_process_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("polyhal.hal.discovery.benchmark_cache._SILENCE", 0.1)
    folder = tmp_path / "cache" / "speeds"
    folder.mkdir(parents=True)
    lock = folder / "measuring.lock"
    lock.touch()
    threading.Timer(0.5, lock.unlink).start()
    assert with_backends(*CPUS.values(), run_benchmark=Clock(pocl=0.5)).open(None).name == "pocl:0"
    assert capsys.readouterr().err.count("waiting for another process that measures devices") == 1


# --- the measurement itself -----------------------------------------------------------------------------------------

TINY = WorkloadSize(products=1, side=16, rows=4, launches=2)


def test_measuring_gives_seconds() -> None:
    figures = benchmark.run_benchmark(Device("numpy"), TINY)
    assert figures.seconds > 0
    assert figures.numpy_seconds > 0


def test_measuring_runs_on_every_device(device: Device) -> None:
    assert benchmark.run_benchmark(device, TINY).seconds > 0


class _Wrong(CoreNumpyBackend):
    """A backend whose products are wrong."""

    def matmul(self, a: Ref, b: Ref, out: Ref) -> None:
        super().matmul(a, b, out)
        array(out)[...] *= np.float32(1.01)


class _NaN(CoreNumpyBackend):
    def matmul(self, a: Ref, b: Ref, out: Ref) -> None:
        array(out)[...] = np.nan


@pytest.mark.parametrize("kind", [_Wrong, _NaN])
def test_a_device_that_computes_wrongly_is_no_candidate(kind: type[CoreNumpyBackend]) -> None:
    device = Device.opened("wrong", kind(create("contiguous_only").info))
    with pytest.raises(BackendError, match="result 0 differs from NumPy's"):
        benchmark.run_benchmark(device, TINY)


@pytest.fixture(scope="module")
def numpy_candidate() -> Candidate:
    registry = Registry()
    return registry.probe("numpy")[0]


def test_a_process_of_its_own_measures(numpy_candidate: Candidate) -> None:
    figures = benchmark.run_in_subprocess(numpy_candidate, 60)
    assert 0 < figures.seconds < 10
    assert 0 < figures.numpy_seconds < 10


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere", "no backend is called 'nowhere'"),
        ("null", "differs from NumPy's"),
        ("numpy:no_f64", "a new process found"),
    ],
)
def test_what_goes_wrong_in_that_process_is_told(name: str, reason: str, numpy_candidate: Candidate) -> None:
    backend, _, selector = name.partition(":")
    listed = replace(numpy_candidate.info, name="something else", selector=selector)
    lost = Candidate(replace(numpy_candidate.backend, name=backend), listed)
    with pytest.raises(RuntimeError, match=reason):
        benchmark.run_in_subprocess(lost, 60)


def test_a_process_that_hangs_is_ended(numpy_candidate: Candidate) -> None:
    with pytest.raises(RuntimeError, match=r"no answer within 0\.01 s"):
        benchmark.run_in_subprocess(numpy_candidate, 0.01)


@pytest.mark.parametrize("program", ["", "/usr/bin/blender", "C:/Program Files/app.exe"])
def test_a_program_that_contains_python_is_not_started_again(
    program: str, numpy_candidate: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    with pytest.raises(BenchmarkUnavailableError):
        benchmark.run_in_subprocess(numpy_candidate, 60)


@pytest.mark.parametrize(
    ("done", "reason"),
    [
        (subprocess.CompletedProcess([], -11, "", "starting\n\nSegmentation fault\n"), "code -11: Segmentation fault"),
        (subprocess.CompletedProcess([], 0, "noise of a driver\n", ""), "ended with code 0"),
        (subprocess.CompletedProcess([], 1, '\n{"problem": "out of memory"}', ""), "^out of memory$"),
        (subprocess.CompletedProcess([], 0, "[1]", ""), "ended with code 0"),
    ],
)
def test_a_process_that_dies_is_understood(done: Any, reason: str, numpy_candidate: Candidate) -> None:
    with pytest.raises(RuntimeError, match=reason):
        benchmark._parse(done, numpy_candidate.info)


@pytest.fixture
def crashing(tmp_path: Path) -> Iterator[Path]:
    """A folder with a plug-in whose device ends the process at the first product."""
    folder = tmp_path / "site"
    meta = folder / "crashing-1.0.dist-info"
    meta.mkdir(parents=True)
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: crashing\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text("[polyhal.backends]\ncrashing = crashing\n")
    (folder / "crashing.py").write_text(
        "import os\n"
        "from dataclasses import replace\n"
        "from polyhal.backends.numpy.backend import CoreNumpyBackend, create\n"
        "from polyhal.hal.hookspecs import BackendSpec, hookimpl\n"
        "from polyhal.hal.protocol import API_VERSION\n"
        "INFO = replace(create('').info, backend='crashing', name='Crash', id='crash', selector='')\n"
        "class Crash(CoreNumpyBackend):\n"
        "    def __init__(self):\n"
        "        super().__init__(INFO)\n"
        "    def matmul(self, a, b, out):\n"
        "        os.abort()\n"
        "@hookimpl\n"
        "def polyhal_backends():\n"
        "    return [BackendSpec('crashing', lambda: [INFO], lambda selector: Crash(), priority=99, api_version=API_VERSION)]\n"
    )
    return folder


def test_a_driver_that_crashes_when_measured_takes_nobody_along(crashing: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(crashing)!r})\n"
        "from polyhal.hal.discovery.registry import registry\n"
        "print(registry().open(None).name)\n"
        "print(next(registry().benchmarks.lookup(c).problem for c in registry().candidates() if c.name == 'crashing'))\n"
    )
    environment = os.environ | {"POLYHAL_DISABLE": "opencl,wgpu", "POLYHAL_MEASURE_TIMEOUT": "60"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    name, problem = done.stdout.splitlines()
    assert name == "numpy"
    assert "the process ended with code -" in problem or sys.platform == "win32"
