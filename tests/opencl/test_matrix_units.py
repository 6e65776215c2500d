"""Matrix units without local hardware: devices that have them, results of emulated ones, and certification.

The emulation (unit_emulation.h) is Intel's CPU runtime with the vendors' built-in functions in OpenCL C, so the
kernel and the layouts of its fragments run. matrix_unit_figures.json has the vendors' compilers' figures for the
kernel.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import emulated_units
import matrix_unit_figures
import ml_dtypes
import numpy as np
import pytest
from native_harness import Harness, as_gpu

from polyhal.backends.common.codegen.templating import SourceFolder
from polyhal.backends.common.described import devices
from polyhal.backends.opencl import present_units
from polyhal.backends.opencl.described import description
from polyhal.backends.opencl.described.backend import OpenCLDescribedBackend
from polyhal.backends.opencl_c.lowering.gemm import matrix_unit
from polyhal.backends.opencl_c.matrix_units import MatrixUnit, UnitTile
from polyhal.backends.opencl_c.profiles import vendor_profile
from polyhal.hal import dtypes
from polyhal.hal.core.kernels import certified_units
from polyhal.hal.core.kernels.certified_units import UnitCertificate
from polyhal.hal.device import Device
from polyhal.hal.testing.certification import certify_units
from polyhal.hal.testing.certification.certify_units import check_unit

pytestmark = pytest.mark.slow

FIGURES: dict[str, dict[str, dict[str, int]]] = json.loads(matrix_unit_figures.PATH.read_text(encoding="utf-8"))
emulated = pytest.mark.skipif(
    emulated_units.host() is None, reason="needs Intel's runtime, whose sub-groups have any size"
)


def opened(unit: str, wrong: int = 0, **facts: Any) -> Device:
    """Open a device whose products use an emulated unit."""
    return Device.opened(f"emulated:{unit},{wrong}", emulated_units.EmulatedBackend(unit, wrong, **facts))


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_UNITS", "all")


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Register the emulated devices in other processes, and keep certificates for this test only."""
    paths = [emulated_units.install(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in paths if p))
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path / "cache"))


# --- units of devices
# ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "units"),
    [
        ("rx480", {}),
        ("vega20", {"dot2": 64}),
        ("rx6800", {"dot2": 32}),
        ("rx7900", {"wmma": 32, "dot2": 32}),
        ("strix", {"wmma": 32, "dot2": 32}),
        ("rx9070", {"wmma_rdna4": 32, "dot2": 32}),
        ("mi250", {"mfma": 64, "dot2": 64}),
        ("uhd630", {}),
        ("irisxe", {}),
        ("a770", {"xmx": 8}),
        ("lunarlake", {"xmx": 16}),
        ("m1", {}),
        ("malig78", {}),
        ("adreno730", {}),
        ("bare12", {}),
    ],
)
def test_devices_have_their_units_and_use_none_without_a_certificate(key: str, units: dict[str, int]) -> None:
    backend = OpenCLDescribedBackend(description.load(key))
    assert list(backend.units.available) == list(units)
    assert backend.features.matrix_units == ()
    used = devices.create(f"{key},units")
    assert {u.name: u.lanes for u in used.features.matrix_units} == units
    assert used.capabilities.features.get("matrix_units", "") == ", ".join(units)


def test_a_processor_and_a_device_without_half_have_none() -> None:
    backend = OpenCLDescribedBackend(description.load("rx7900"))
    units, device, features = _amd(), backend.description.device, backend.features
    assert present_units.present(units, device, features)
    for facts in ({"cpu": True}, {"fp16": False}, {"local_memory_is_real": False}, {"max_group_size": 128}):
        assert present_units.present(units, device, replace(features, **facts)) == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lanes", None),
        ("rooms", "3"),
        ("large", "[128, 100, 64, 32]"),
        ("small", "[64, 64, 0, 32]"),
        ("devices", "[]"),
        ("dtypes", "['float15']"),
    ],
)
def test_an_invalid_unit_is_refused(field: str, value: str | None) -> None:
    given: dict[str, str | None] = {
        "name": "'mine'",
        "description": "''",
        "source": "''",
        "lanes": "32",
        "dtypes": "['float16']",
        "devices": "['x']",
        "large": "[128, 128, 64, 32]",
        "small": "[64, 64, 32, 32]",
    }

    def text(fields: dict[str, str | None]) -> str:
        lines = "\n".join(f"{k} = {v}" for k, v in fields.items() if v is not None)
        return f"[match]\nkinds = ['gpu']\n[[matrix_units]]\n{lines}\n"

    assert vendor_profile.parse("mine", text(given)).matrix_units[0].large.waves == 8
    with pytest.raises(ValueError, match="profile mine"):
        vendor_profile.parse("mine", text({**given, field: value}))


def _amd() -> Any:
    return next(p for p in vendor_profile.shipped() if p.name == "amd").matrix_units


# --- emulated products
# ---------------------------------------------------------------------------------------------------


def product(harness: Harness, m: int, n: int, k: int, dtype: Any, rng: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return a product with float32 sums, and the exact product of whole numbers, which no order of summation rounds."""
    x, y = (rng.integers(-8, 9, s).astype(dtype) for s in ((m, k), (k, n)))
    refs = [harness.upload(x), harness.upload(y)]
    result = harness.run("matmul", refs, dtypes.float32, (m, n), out_dtype=dtypes.float32, precision="highest")
    return result, x.astype(np.float64) @ y.astype(np.float64)


@emulated
@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("unit", emulated_units.UNITS)
def test_emulated_units_multiply_exactly(unit: str, rng: Any) -> None:
    backend = emulated_units.EmulatedBackend(unit)
    for dtype in emulated_units.UNITS[unit].dtypes:
        result, exact = product(Harness(backend), 130, 75, 70, dtype.numpy, rng)
        np.testing.assert_array_equal(result, exact)
    assert {b.kernel for b in backend.kernels.program_builds} >= {"gemm/matrix_unit.cl"}


@emulated
@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("unit", ["xmx16", "dot264"])
@pytest.mark.parametrize("wrong", [1, 2])
def test_a_unit_with_another_layout_is_not_certified(unit: str, wrong: int) -> None:
    found = check_unit(opened(unit, wrong), emulated_units.UNITS[unit].name)
    assert not found.correct
    assert "matmul of float16: wrong result, 4096 of 4096 elements are off" in found.problem


@emulated
@pytest.mark.usefixtures("forced")
def test_a_unit_whose_kernel_the_driver_refuses_is_not_certified() -> None:
    """Otherwise a fallback kernel would compute correct results."""
    device = opened("dot232")
    text = device.backend.runtime.programs.text
    device.backend.runtime.programs.text = lambda *args: text(*args).replace(
        "#define __builtin_amdgcn_fdot2", "#define other"
    )
    found = check_unit(device, "dot2")
    assert not found.correct
    assert "the driver refused the kernel" in found.problem


def test_the_kernel_without_a_unit(device: Any, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tiles, edges and split sums in plain C run on every device: PoCL does not compile sub-groups."""
    runtime = device.backend.runtime
    tile = UnitTile(64, 64, 32, 32)
    plain = MatrixUnit("none", "", "", (dtypes.float16, dtypes.bfloat16), 32, tile, tile)
    monkeypatch.setattr(runtime, "features", as_gpu(runtime.features, matrix_units=(plain,), compute_units=4))
    used = []
    build = matrix_unit.build
    monkeypatch.setattr(matrix_unit, "build", lambda *args: used.append(args) or build(*args))
    for dtype, (m, n, k) in ((np.float16, (70, 65, 33)), (ml_dtypes.bfloat16, (33, 40, 2100))):
        result, exact = product(device, m, n, k, dtype, rng)
        np.testing.assert_array_equal(result, exact)
    assert len(used) == 2


# --- certificates
# --------------------------------------------------------------------------------------------------------


def certificate(unit: str, texts: str, problem: str = "") -> UnitCertificate:
    return UnitCertificate(unit, problem, 8, "2026-01-02", texts)


@emulated
@pytest.mark.usefixtures("site")
def test_the_certificate_decides() -> None:
    """Processes that start later use a right unit and not a wrong one; each unit is checked in a separate process."""
    before = emulated_units.EmulatedBackend("dot232")
    assert before.features.matrix_units == ()
    assert "`polyhal verify --units emulated:dot232,0` verifies it" in before.units.lines("emulated:dot232,0")[0]
    (right,) = certify_units.certify_units(opened("dot232"))
    assert right.correct
    assert right.checks >= 4
    after = emulated_units.EmulatedBackend("dot232")
    assert [u.name for u in after.features.matrix_units] == ["dot2"]
    assert "in use: " in after.units.lines("x")[0]


@emulated
@pytest.mark.usefixtures("site")
def test_the_command_refuses_a_wrong_unit() -> None:
    name = "emulated:dot232,1"
    done = command("verify", "--units", name)
    assert done.returncode == 1, done.stderr
    assert "dot2 (dot products of pairs of float16): not in use: wrong on" in done.stdout
    assert "matmul of float16: wrong result, 4096 of 4096 elements are off" in done.stdout
    backend = emulated_units.EmulatedBackend("dot232", 1)
    assert backend.features.matrix_units == ()
    (kept,) = json.loads(command("verify", "--units", "--show", "--json", name).stdout)["units"]
    assert kept == backend.units.certificates["dot2"].to_json()
    assert "matrix unit dot2" in command("doctor", "--all", "--no-test").stdout
    assert "has no matrix unit that needs a certificate" in command("verify", "--units", "numpy").stdout


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Return the command line for a separate process."""
    code = "import sys; from polyhal.cli.app import run; sys.exit(run(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300, check=False
    )


@emulated
@pytest.mark.usefixtures("site")
def test_a_process_that_does_not_answer_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    device = opened("dot264")
    assert certify_units.certify_units(device, timeout=0.1)[0].problem == "the checks did not end within 0.1 seconds"
    monkeypatch.setenv("PYTHONPATH", os.environ["PYTHONPATH"].partition(os.pathsep)[2])  # without the plug-in
    (lost,) = certify_units.certify_units(device)
    assert "the process ended with code 1" in lost.problem
    assert certified_units.load(device.info, lost.texts) == {"dot2": lost}


@emulated
def test_a_unit_is_checked_only_where_it_is_in_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path))
    with pytest.raises(ValueError, match="the unit dot2 is not in use"):
        check_unit(opened("dot264"), "dot2")
    assert certify_units.certify_units(Device("numpy")) == []


def test_certificates_are_for_one_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path))
    backend = OpenCLDescribedBackend(description.load("rx7900"))
    info, texts = backend.info, backend.units.texts
    wmma, dot2 = certificate("wmma", texts), certificate("dot2", texts, "wrong result")
    certified_units.store(info, [wmma])
    file = certified_units.store(info, [dot2])
    assert certified_units.load(info, texts) == {"wmma": wmma, "dot2": dot2}
    assert [u.name for u in OpenCLDescribedBackend(description.load("rx7900")).features.matrix_units] == ["wmma"]
    assert certified_units.load(replace(info, driver="other"), texts) == {}
    for text in ("{", '{"schema": 2}', file.read_text().replace('"checks": 8', '"checks": "8"')):
        file.write_text(text)
        assert certified_units.load(info, texts) == {}


def test_certificates_are_for_the_kernels_that_were_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a development folder kernels change without a new version."""
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path))
    backend = OpenCLDescribedBackend(description.load("rx7900"))
    certified_units.store(backend.info, [certificate("wmma", backend.units.texts)])
    shipped = SourceFolder.shipped
    for changed, used in (
        ("softmax.cl", ["wmma"]),
        ("lib/unit_wmma.h", []),
        ("gemm/matrix_unit.cl", []),
        ("", ["wmma"]),
    ):

        def edited(folder: SourceFolder, name: str, changed: str = changed) -> str:
            return shipped(folder, name) + ("// edited" if name == changed else "")

        monkeypatch.setattr(SourceFolder, "shipped", edited)
        assert [u.name for u in OpenCLDescribedBackend(description.load("rx7900")).features.matrix_units] == used


def test_a_forced_unit_is_the_only_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Otherwise a certified unit could run instead of the one under test."""
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path))
    backend = OpenCLDescribedBackend(description.load("rx7900"))
    certified_units.store(backend.info, [certificate("wmma", backend.units.texts)])
    for value, used in (("dot2", ["dot2"]), ("none", []), ("all", ["wmma", "dot2"]), ("", ["wmma"])):
        monkeypatch.setenv("POLYHAL_UNITS", value)
        assert [u.name for u in OpenCLDescribedBackend(description.load("rx7900")).features.matrix_units] == used


# --- compiled kernels
# ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", matrix_unit_figures.DEVICES)
def test_compiled_kernels_use_the_unit_without_spills(key: str) -> None:
    assert FIGURES[key]
    for name, figures in FIGURES[key].items():
        assert figures["matrix_instructions"] > 0, name
        assert figures["spilled_registers"] == 0, name
        assert figures["private_bytes"] == 0, name
        assert figures.get("waves", 2) >= (7 if key.startswith("rx") else 2), name
        assert figures["local_bytes"] <= 32 << 10, name


@pytest.mark.skipif(not os.environ.get("POLYHAL_TEST_ALL"), reason="needs the compilers of vendors: make vendors")
@pytest.mark.parametrize("key", matrix_unit_figures.DEVICES)
def test_stored_unit_figures_agree_with_the_compilers(key: str) -> None:
    found = matrix_unit_figures.figures(key)
    assert found.keys() == FIGURES[key].keys()
    for name, figures in found.items():
        stored = FIGURES[key][name]
        assert all(figures[most] <= stored[most] for most in ("spilled_registers", "private_bytes")), name
        assert all(figures[least] >= stored[least] for least in ("waves", "lanes") if least in stored), name
        assert figures["matrix_instructions"] > 0, name
