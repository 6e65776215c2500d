"""`polyhal devices`, `doctor`, `explain`, `--version` and `--help`."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from rich.console import Console

import polyhal as package
from polyhal.cli.display import count, say_wrapped
from polyhal.hal.capabilities import UnusableDevice
from polyhal.hal.core.hardware.profile import profile_names
from polyhal.hal.core.plugins.entry_points import Failure
from polyhal.hal.core.plugins.probing import Candidate
from polyhal.hal.core.settings import env
from polyhal.hal.device import Device
from polyhal.hal.hookspecs import ENTRY_POINT_GROUP, BackendSpec
from polyhal.hal.protocol import API_VERSION
from polyhal.hal.system.diagnostics import doctor
from polyhal.hal.system.discovery.benchmark import BenchmarkTimes
from polyhal.hal.system.discovery.registry import Registry

from .conftest import TINY, Command


def _python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a subprocess, which chooses its default device."""
    inherited = {k: v for k, v in os.environ.items() if k != "POLYHAL_DEVICE"}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=inherited | environment, timeout=60
    )


_NEXT = "=== next ==="


def _commands(*commands: list[str], before: str = "", **environment: str) -> tuple[list[str], str]:
    """Run commands in one subprocess, after the statements in `before`. Returns the output of each, and all errors."""
    code = f"import sys\n{before}\nfrom polyhal.cli.app import run\n"
    code += f"for command in {commands!r}:\n    print(run(command), {_NEXT!r})\n"
    done = _python(code, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(f"{_NEXT}\n")[:-1], done.stderr


def test_version_and_help(polyhal: Command) -> None:
    assert polyhal("--version").out == f"polyhal {package.__version__}\n"
    out = polyhal("--help").out
    assert all(name in out for name in ("train", "generate", "devices", "doctor", "explain"))
    for name in ("Model", "Training", "Data", "Run"):
        assert f" {name} " in polyhal("train", "--help").out


def test_help_loads_no_driver_and_no_plotting() -> None:
    heavy = "{'pyopencl', 'matplotlib', 'tokenizers', 'wgpu', 'polyhal.training', 'polyhal.models'}"
    code = f"import sys\nfrom polyhal.cli.app import run\nrun(['train', '--help'])\nprint({heavy} & set(sys.modules))"
    assert _python(code).stdout.splitlines()[-1] == "set()"


def test_devices_are_listed_with_the_default_marked(polyhal: Command) -> None:
    found = json.loads(polyhal("devices", "--json").out)["devices"]
    assert [d["device"] for d in found if d["default"]] == [Device.default().name]
    assert "numpy" in [d["device"] for d in found]
    assert all({"name", "type", "memory", "driver", "capabilities"} <= set(d) for d in found)
    assert not any(d["backend"] == "null" for d in found)
    assert any(d["backend"] == "null" for d in json.loads(polyhal("devices", "--all", "--json").out)["devices"])
    out = polyhal("devices").out
    assert "→" in out
    assert "NumPy" in out


def test_cards_are_listed(polyhal: Command) -> None:
    found = {card["name"]: card for card in json.loads(polyhal("devices", "--cards", "--json").out)["cards"]}
    assert found["rx6800"]["apis"] == ["opencl", "vulkan"]
    assert found["a770"]["aliases"] == ["arc_a770"]
    assert [name for name, card in found.items() if card["is_simulated"]] == profile_names()
    out = polyhal("devices", "--cards").out
    assert all(name in out for name in found)


def test_the_doctor_reports_everything_and_finds_it_healthy(polyhal: Command) -> None:
    outcome = polyhal("doctor", "--json")
    report = json.loads(outcome.out)
    assert outcome.code == 0
    assert report["healthy"]
    assert report["distributions"]["polyhal"]
    assert ["numpy = polyhal.backends.numpy", "polyhal"] in report["entry_points"]
    for device in report["devices"]:
        count = len(device["capabilities"]["storage"])
        assert [t["name"] for t in device["tests"]] == ["a + b", "a @ b", f"{count} dtypes"]
        assert all(t["passed"] and t["seconds"] > 0 for t in device["tests"])
    assert report["default"] == Device.default().name
    text = polyhal("doctor").out
    assert "Polyhal will use " in text
    assert "a @ b: ok" in text


def test_the_doctor_lists_the_workarounds_in_force(polyhal: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Device("numpy").backend
    quirks = {"scalar_fmod": "fmod of a vector is wrong"}
    monkeypatch.setattr(backend, "capabilities", replace(backend.capabilities, quirks=quirks))
    assert "    workaround scalar_fmod: fmod of a vector is wrong" in polyhal("doctor").out
    (listed,) = [d for d in json.loads(polyhal("devices", "--json").out)["devices"] if d["device"] == "numpy"]
    assert listed["capabilities"]["quirks"] == quirks


def test_the_doctor_reports_a_device_that_computes_wrongly(polyhal: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    original = doctor.self_test

    def broken(device: Device) -> tuple[doctor.SelfTest, ...]:
        return tuple(replace(t, passed=False, problem="the result differs from NumPy's") for t in original(device))

    monkeypatch.setattr(doctor, "self_test", broken)
    outcome = polyhal("doctor")
    assert outcome.code == 1
    assert "a + b: FAILED: the result differs from NumPy's" in outcome.out


def test_a_self_test_that_raises_is_reported() -> None:
    class Broken:
        def upload(self, *args: object) -> None:
            raise RuntimeError("the driver\nhas gone away")

    found = doctor.self_test(Broken())  # type: ignore[arg-type]
    assert not any(t.passed for t in found)
    assert found[0].problem == "RuntimeError: the driver has gone away"


def test_environment_variables_come_from_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    known = doctor.variables()
    assert {"POLYHAL_DEVICE", "POLYHAL_CACHE_DIR", "POLYHAL_DISABLE", "POLYHAL_DEBUG"} <= set(known)
    assert all(known.values())
    monkeypatch.setenv("POLYHAL_DEVCE", "numpy")
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(env.cache_dir()))
    report = doctor.examine(tests=False)
    assert "POLYHAL_DEVCE" in report.unknown_variables
    assert report.environment["POLYHAL_CACHE_DIR"] == str(env.cache_dir())


def test_doctor_points_to_sections_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry([EntryPoint("numpy", "polyhal.backends.numpy", ENTRY_POINT_GROUP)])
    monkeypatch.setattr(doctor, "registry", lambda: registry)
    report = doctor.examine(tests=False)
    no_doubles = replace(report.devices[0], capabilities={"storage": ["float32"]})
    broken = replace(report.devices[0], problem="it does not open")
    pages = dict(replace(report, devices=(no_doubles, broken)).pages)
    assert set(pages) == {
        "no OpenCL device was found",
        "a device cannot be opened, or computes wrong results",
        "a device has no float64",
    }
    for place in pages.values():
        address, _, anchor = place.partition("#")
        path = f"docs/{address.rpartition('/')[2]}"
        titles = re.findall(r"^## (.*)$", (Path(__file__).parents[2] / path).read_text(encoding="utf-8"), re.MULTILINE)
        assert anchor in [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles]


def test_broken_plug_ins_are_reported_with_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry([])
    registry.failures.append(Failure("entry point odd = odd_package", "RuntimeError: licence expired", "uninstall odd"))
    monkeypatch.setattr(doctor, "registry", lambda: registry)
    report = doctor.examine()
    assert not report.healthy
    assert report.default == ""
    assert any(p.source == "entry point odd = odd_package" and p.fix == "uninstall odd" for p in report.problems)


def test_devices_that_are_left_out_are_reported(polyhal: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry([EntryPoint("numpy", "polyhal.backends.numpy", ENTRY_POINT_GROUP)])
    left_out = UnusableDevice("Old card", "it supports OpenCL 1.0", "update the driver")
    registry.add(BackendSpec("vendor", probe=lambda: [left_out], create=str, api_version=API_VERSION))
    monkeypatch.setattr(doctor, "registry", lambda: registry)
    told = "vendor device Old card: left out: it supports OpenCL 1.0"
    assert f"{told}; update the driver" in polyhal("devices").out
    assert f"{told}\n    fix: update the driver" in polyhal("doctor", "--no-test").out


def test_packages_are_the_requirements_of_polyhal_and_its_plug_ins() -> None:
    found = doctor.examine(tests=False).distributions
    assert {"polyhal", "numpy", "pluggy", "safetensors", "matplotlib"} <= set(found)
    assert not {"pytest", "mypy", "ruff"} & set(found)
    assert found["numpy"]


def test_variables_that_a_backend_names_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VENDOR_TRACE", "1")
    assert "VENDOR_TRACE" not in doctor.examine(tests=False).environment
    registry = Registry()
    registry.add(BackendSpec("vendor", probe=list, create=str, api_version=API_VERSION, environment=("VENDOR_",)))
    monkeypatch.setattr(doctor, "registry", lambda: registry)
    assert doctor.examine(tests=False).environment["VENDOR_TRACE"] == "1"


def test_speeds_are_shown_and_measured_again_on_request(
    polyhal: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("POLYHAL_MEASURE_TIMEOUT", "60")
    asked: list[str] = []

    def measure(candidate: Candidate, limit: float) -> BenchmarkTimes:
        asked.append(candidate.name)
        return BenchmarkTimes(0.5, 1.0, 512)

    found = Registry([EntryPoint("numpy", "polyhal.backends.numpy", ENTRY_POINT_GROUP)], run_benchmark=measure)
    monkeypatch.setattr("polyhal.hal.system.discovery.registry.registry", lambda: found)
    monkeypatch.setattr(doctor, "registry", lambda: found)
    (row,) = json.loads(polyhal("devices", "--json").out)["devices"]
    assert row["speed"] is None
    assert asked == []
    measured = polyhal("devices", "--measure", "--json")
    (row,) = json.loads(measured.out)["devices"]
    assert row["speed"]["ratio"] == 2.0
    assert measured.err.startswith("polyhal: measuring numpy once")
    assert "2.0x" in (listed := polyhal("devices").out)
    assert ": the only device found" in listed.partition("Default device: numpy (")[2]
    assert "speed: 2.0x NumPy, measured on 20" in polyhal("doctor").out
    assert asked == ["numpy"]
    monkeypatch.setenv("POLYHAL_MEASURE_TIMEOUT", "0")
    assert "not measured: POLYHAL_MEASURE_TIMEOUT is 0" in polyhal("devices", "--measure").err


def test_a_failed_measurement_is_reported(polyhal: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("POLYHAL_MEASURE_TIMEOUT", "60")

    def measure(candidate: Candidate, limit: float) -> BenchmarkTimes:
        raise RuntimeError("result 0 differs")

    found = Registry([EntryPoint("numpy", "polyhal.backends.numpy", ENTRY_POINT_GROUP)], run_benchmark=measure)
    found.refresh_benchmarks()
    monkeypatch.setattr(doctor, "registry", lambda: found)
    assert "failed" in polyhal("devices").out
    assert "speed: could not be measured: RuntimeError: result 0 differs, on 20" in polyhal("doctor").out


def test_driver_files_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.icd").write_text("libexample.so.1\n")
    (tmp_path / "b.icd").write_text(f"{tmp_path}/missing.so\n")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    found = doctor.driver_files()
    assert [(f.library, f.exists) for f in found] == [("libexample.so.1", None), (f"{tmp_path}/missing.so", False)]


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="builds libraries for Linux")
def test_a_driver_that_cannot_be_loaded_is_shown_with_the_missing_library(
    polyhal: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The OpenCL loader ignores it silently, so its devices would be missing without an explanation."""
    (tmp_path / "empty.c").write_text("")
    build = ["cc", "-shared", "-fPIC", "-Wl,--no-as-needed", "-o"]
    subprocess.run([*build, "libabsent.so", "empty.c", "-Wl,-soname,libabsent.so.1"], cwd=tmp_path, check=True)
    subprocess.run([*build, "broken.so", "empty.c", "libabsent.so"], cwd=tmp_path, check=True)
    subprocess.run([*build, "working.so", "empty.c"], cwd=tmp_path, check=True)
    for name in ("broken", "working"):
        (tmp_path / f"{name}.icd").write_text(f"{tmp_path}/{name}.so\n")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    said = "libabsent.so.1: cannot open shared object file: No such file or directory"
    assert [(f.exists, f.problem) for f in doctor.driver_files()] == [(True, said), (True, "")]
    found = Registry([EntryPoint("numpy", "polyhal.backends.numpy", ENTRY_POINT_GROUP)])
    monkeypatch.setattr(doctor, "registry", lambda: found)
    shown = polyhal("doctor", "--no-test").out
    assert f"cannot be loaded: {said}\n      fix: install the missing library" in shown


def test_explain_shows_how_an_op_runs(polyhal: Command) -> None:
    out = polyhal("explain", "matmul", "--shape", "3,4", "--shape", "4,5", "--device", "numpy").out
    assert out.startswith("numpy (NumPy")
    assert "matmul(float32[3, 4], float32[4, 5])" in out
    outcome = polyhal("explain", "matmul", "--shape", "3,4", "--device", "numpy")
    assert outcome.code == 2
    assert "[matmul] missing shape of y; expected a shape for each of x, y" in outcome.err


NO_DRIVERS = {
    "switched off": {"POLYHAL_DISABLE": "opencl,wgpu"},
    "no platforms": {"OCL_ICD_VENDORS": os.devnull, "POLYHAL_DISABLE": "wgpu"},
    "no pyopencl": {"before": "sys.modules['pyopencl'] = None", "POLYHAL_DISABLE": "wgpu"},
}


@pytest.mark.parametrize("case", NO_DRIVERS)
def test_a_machine_without_drivers_trains_on_numpy_and_prints_what_to_install(
    case: str, text: Path, tmp_path: Path
) -> None:
    run = str(tmp_path / "run")
    train = ["train", str(text), *TINY, "--steps", "2", "--save-dir", run]
    (trained, examined), errors = _commands(train, ["doctor", "--json"], **NO_DRIVERS[case])
    assert trained.endswith("\n0 "), errors
    assert "device: numpy (NumPy" in trained
    report = json.loads(examined.rpartition("}")[0] + "}")
    assert report["default"] == "numpy"
    advice = " ".join(p["fix"] for p in report["problems"])
    assert "driver" in advice
    if case == "no pyopencl":
        assert 'pip install "polyhal[opencl]"' in advice


def test_prose_is_wrapped_at_words_only_on_a_terminal() -> None:
    line = "  a line of prose that is longer than the terminal"
    for terminal, expected in (
        (True, ["  a line of prose", "    that is longer", "    than the terminal"]),
        (False, [line]),
    ):
        console = Console(file=io.StringIO(), width=22, force_terminal=terminal, color_system=None)
        say_wrapped(console, line)
        assert isinstance(console.file, io.StringIO)
        assert [text.rstrip() for text in console.file.getvalue().splitlines()] == expected


def test_counts_come_with_the_right_form_of_the_noun() -> None:
    assert [count(0, "kernel"), count(1, "kernel")] == ["0 kernels", "1 kernel"]
    assert [count(1, "process", "processes"), count(2, "process", "processes")] == ["1 process", "2 processes"]


def test_colours_stay_out_of_pipes_and_of_no_color(text: Path) -> None:
    (found,), _ = _commands(["doctor", "--no-test"], POLYHAL_DISABLE="opencl,wgpu", NO_COLOR="1", FORCE_COLOR="1")
    assert "\x1b[3" not in found
