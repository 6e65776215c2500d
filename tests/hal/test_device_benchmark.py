"""The measurement itself, in this process and in a separate one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyhal.backends.numpy.backend import CoreNumpyBackend, array, create
from polyhal.hal.capabilities import DeviceType
from polyhal.hal.core.plugins.probing import Candidate
from polyhal.hal.device import Device
from polyhal.hal.errors import BackendError
from polyhal.hal.layout import Ref
from polyhal.hal.system.discovery import benchmark
from polyhal.hal.system.discovery.benchmark import BenchmarkUnavailableError, WorkloadSize
from polyhal.hal.system.discovery.registry import Registry

pytestmark = pytest.mark.usefixtures("speeds_folder")


TINY = WorkloadSize(products=1, side=16, rows=4, launches=2)


def test_measuring_returns_seconds() -> None:
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
def test_a_device_that_computes_wrongly_is_not_a_candidate(kind: type[CoreNumpyBackend]) -> None:
    device = Device.opened("wrong", kind(create("contiguous_only").info))
    with pytest.raises(BackendError, match="result 0 differs from NumPy's"):
        benchmark.run_benchmark(device, TINY)


class _Counting(CoreNumpyBackend):
    """A backend with slow matrix products that records their numbers of rows."""

    def __init__(self, kind: DeviceType, seconds: float = 0.0) -> None:
        super().__init__(replace(create("contiguous_only").info, type=kind))
        self.seconds = seconds
        self.rows: list[int] = []

    def matmul(self, a: Ref, b: Ref, out: Ref) -> None:
        self.rows.append(a.shape[-2])
        time.sleep(self.seconds)
        super().matmul(a, b, out)


def test_a_pass_of_a_very_slow_device_is_stopped_and_extrapolated() -> None:
    backend = _Counting(DeviceType.ACCELERATOR, seconds=0.02)
    begin = time.perf_counter()
    times = benchmark.run_benchmark(Device.opened("slow", backend), TINY._replace(products=5, launches=2000))
    assert backend.rows == [TINY.side] * 6, "one product that builds the kernel, and one pass"
    assert times.seconds > 5 * 0.02
    assert times.seconds > 4 * times.numpy_seconds
    assert time.perf_counter() - begin < times.seconds + 5


@pytest.mark.parametrize(("kind", "larger"), [(DeviceType.CPU, False), (DeviceType.GPU, True)])
def test_a_card_that_is_not_filled_also_runs_the_larger_workload(
    kind: DeviceType, larger: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "_UNFILLED", float("inf"))  # as if passes were short, also on a busy machine
    backend = _Counting(kind)
    times = benchmark.run_benchmark(Device.opened("card", backend), TINY, TINY._replace(side=32, rows=16))
    assert (32 in backend.rows) is larger
    assert times.seconds > 0


@pytest.fixture(scope="module")
def numpy_candidate() -> Candidate:
    registry = Registry()
    return registry.probe("numpy")[0]


def test_a_separate_process_measures(numpy_candidate: Candidate) -> None:
    figures = benchmark.run_in_subprocess(numpy_candidate, 60)
    assert 0 < figures.seconds < 10
    assert 0 < figures.numpy_seconds < 10


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere", "unknown backend 'nowhere'"),
        ("null", "differs from NumPy's"),
        ("numpy:no_f64", "a new process found"),
    ],
)
def test_errors_in_that_process_are_reported(name: str, reason: str, numpy_candidate: Candidate) -> None:
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
def test_the_output_of_a_process_that_dies_is_reported(done: Any, reason: str, numpy_candidate: Candidate) -> None:
    with pytest.raises(RuntimeError, match=reason):
        benchmark._parse(done, numpy_candidate.info)


@pytest.fixture
def crashing(tmp_path: Path) -> Iterator[Path]:
    """Create a folder with a plug-in whose device ends the process at the first product."""
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


def test_a_driver_that_crashes_when_measured_does_not_end_the_program(crashing: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(crashing)!r})\n"
        "from polyhal.hal.system.discovery.registry import registry\n"
        "print(registry().open(None).name)\n"
        "print(next(registry().benchmarks.lookup(c).problem for c in registry().candidates() if c.name == 'crashing'))\n"
    )
    environment = os.environ | {"POLYHAL_DISABLE": "opencl,wgpu", "POLYHAL_MEASURE_TIMEOUT": "60"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    name, problem = done.stdout.splitlines()
    assert name == "numpy"
    assert "the process ended with code -" in problem or sys.platform == "win32"
