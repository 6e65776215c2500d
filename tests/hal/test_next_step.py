"""The command that a newcomer is shown, by system, installed packages and devices."""

from __future__ import annotations

import platform

import pytest
from device_fakes import CARDS, CPUS, Clock, with_backends

from polyhal.hal.system.discovery import next_step

pytestmark = pytest.mark.usefixtures("speeds_folder")
CPU_DRIVER = 'pip install "polyhal[cpu]"'
WGPU = 'pip install "polyhal[wgpu]"'


@pytest.mark.parametrize(
    ("system", "machine", "devices", "installed", "command"),
    [
        ("Linux", "x86_64", ["numpy"], [], CPU_DRIVER),
        ("Linux", "x86_64", ["numpy", "pocl"], [], CPU_DRIVER),
        ("Linux", "x86_64", ["numpy", "wgpu"], ["wgpu"], CPU_DRIVER),  # a software renderer
        ("Linux", "x86_64", ["numpy"], ["intel-opencl-rt"], ""),
        ("Linux", "x86_64", ["numpy", "intel"], ["intel-opencl-rt"], ""),
        ("Linux", "x86_64", ["numpy", "integrated"], [], ""),
        ("Linux", "aarch64", ["numpy"], [], "apt install pocl-opencl-icd"),
        ("Linux", "aarch64", ["numpy", "pocl"], [], ""),
        ("Windows", "AMD64", ["numpy"], [], CPU_DRIVER),
        ("Windows", "ARM64", ["numpy"], ["wgpu"], ""),
        ("Darwin", "arm64", ["numpy"], [], WGPU),
        ("Darwin", "x86_64", ["numpy"], [], WGPU),
    ],
)
def test_the_next_step(
    system: str,
    machine: str,
    devices: list[str],
    installed: list[str],
    command: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(next_step, "_is_installed", installed.__contains__)
    found = with_backends(*((CPUS | CARDS)[name] for name in devices)).candidates()
    assert next_step.next_step(found) == command


def test_a_program_on_the_reference_prints_the_next_step_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(next_step, "_is_installed", lambda name: False)
    found = with_backends(CPUS["numpy"])
    for _ in range(2):
        found.open(None)
        found.set_default(None)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("polyhal: no OpenCL device and no GPU was found, so NumPy computes")
    assert CPU_DRIVER in line


@pytest.mark.parametrize("case", ["chosen by name", "another device"])
def test_no_next_step_is_printed_by_a_program_that_needs_none(
    case: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if case == "chosen by name":
        monkeypatch.setenv("POLYHAL_DEVICE", "numpy")
        with_backends(CPUS["numpy"]).open(None)
    else:
        with_backends(CPUS["numpy"], CPUS["pocl"], run_benchmark=Clock(numpy=0.1)).open(None)
    assert "next step" not in capsys.readouterr().err
