"""Installed distributions that violate the rules of plug-ins: `doctor` reports each, and programs still run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from broken_plugins import CASES, DEVICE, LIARS, Broken
from installed_plugins import install, run

_LIMIT = "2"
DOCTOR = "import sys; from polyhal.cli.app import run; sys.exit(run(['doctor']))"
WORK = """
import json, polyhal
from polyhal.hal.system.diagnostics.doctor import examine
device = polyhal.Device.default()
total = (polyhal.ones(3, device=device) + 1).sum().item()
print(json.dumps({"device": device.name, "total": total, "report": examine(tests=False, hidden=True).to_json()}))
"""
"""Program whose one line is the report and the result of a computation."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder with every broken plug-in."""
    folder = tmp_path_factory.mktemp("site")
    for plugin in CASES + LIARS:
        install(folder, plugin)
    return folder


@pytest.fixture(scope="module")
def printed(site: Path) -> list[str]:
    """Return the lines of a program with all of them installed, and then of `polyhal doctor` in the same process."""
    done = run(WORK + DOCTOR, site, _LIMIT)
    assert done.returncode == 1, done.stderr  # because of the liars
    assert "Traceback" not in done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def report(printed: list[str]) -> dict[str, Any]:
    """Return the report and the result of the program."""
    found: dict[str, Any] = json.loads(printed[0])
    return found


@pytest.fixture(scope="module")
def doctor(printed: list[str]) -> list[str]:
    """Return the lines that `polyhal doctor` prints."""
    return printed[1:]


@pytest.mark.parametrize("plugin", CASES, ids=lambda p: p.name)
def test_each_is_reported_in_one_clear_line_with_the_fix(plugin: Broken, doctor: list[str]) -> None:
    line, fix = plugin.filled(plugin.line), plugin.filled(plugin.fix)
    if plugin.source is DEVICE:
        begin = next(i for i, text in enumerate(doctor) if text.startswith(f"  {plugin.name}: device of {plugin.name}"))
        found, advice = doctor[begin + 1 : begin + 3]
        assert found.startswith("    cannot be opened: ")
    else:
        source = plugin.filled(plugin.source)
        (place,) = (i for i, text in enumerate(doctor) if text.startswith(f"  {source}: "))
        found, advice = doctor[place : place + 2]
    assert line in found
    assert advice.strip().startswith(f"fix: {fix}")


@pytest.mark.parametrize("plugin", LIARS, ids=lambda p: p.name)
def test_a_false_claim_about_a_dtype_is_found(plugin: Broken, doctor: list[str]) -> None:
    begin = next(i for i, text in enumerate(doctor) if text.startswith(f"  {plugin.name}: device of {plugin.name}"))
    (line,) = (text for text in doctor[begin + 1 : begin + 6] if "FAILED" in text)
    assert line.startswith(f"    13 dtypes: FAILED: {plugin.line}")


def test_the_default_device_works_with_all_of_them_installed(report: dict[str, Any]) -> None:
    assert report["device"] == "numpy"
    assert report["total"] == 6.0
    assert {"numpy", "null"} <= {d["name"] for d in report["report"]["devices"] if not d["problem"]}


def test_each_problem_is_reported_once_and_with_a_fix(report: dict[str, Any]) -> None:
    problems = report["report"]["problems"]
    sources = [p["source"] for p in problems if p["source"].startswith(("entry point", "backend"))]
    assert len(sources) == len(set(sources))
    assert len(sources) == len([c for c in CASES if c.source is not DEVICE])
    assert all(p["fix"] for p in problems)


def test_built_in_backends_load_first_so_that_their_names_are_not_taken(report: dict[str, Any]) -> None:
    assert report["report"]["backends"][:2] == ["cuda", "null"]


def test_working_parts_of_a_partly_broken_plug_in_are_kept(report: dict[str, Any]) -> None:
    working = {d["name"] for d in report["report"]["devices"] if not d["problem"]}
    assert {"takes-an-alias", "alias-is-a-name", "info-twice"} <= working


def test_opening_a_device_by_name_does_not_wait_for_other_probes(site: Path) -> None:
    code = (
        "import time, polyhal.hal.system.discovery.registry as r\n"
        "found = r.registry()\n"
        "begun = time.perf_counter()\n"
        "found.open('numpy')\n"
        "print(time.perf_counter() - begun)\n"
    )
    assert float(run(code, site, _LIMIT).stdout) < 1.0


def test_a_time_limit_that_is_not_a_number_is_rejected(tmp_path: Path) -> None:
    done = run("import polyhal; polyhal.Device('numpy')", tmp_path, "soon")
    assert "POLYHAL_PROBE_TIMEOUT is 'soon'; expected a number of seconds" in done.stderr
    done = run(DOCTOR.replace("doctor", "devices"), tmp_path, "-1")
    assert done.returncode == 2
    assert done.stderr == "error: POLYHAL_PROBE_TIMEOUT is '-1'; expected a number of seconds, 0 or more\n"
