"""The file of a report, the page of reports, and the command's own errors."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import reported_devices
from polyhal.cli.app import run
from polyhal.hal.device import Device
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError
from polyhal.hal.testing.certification.run_record import RunRecord
from polyhal.hal.testing.certification.runner import select_cases
from polyhal.hal.testing.kit.scope import Scope
from polyhal.reports import machine_report, workloads
from polyhal.reports.machine_report import (
    Baseline,
    DeviceFacts,
    FailedCheck,
    MachineReport,
    QuickChecks,
    ReportedDevice,
    SpeedFigure,
)
from polyhal.reports.worker import spread

FIGURE = SpeedFigure("product", "float32", "8 x 8 x 8", 1234.5, "GFLOP/s", 0.1)
FACTS = DeviceFacts("a GPU", "gpu", "a vendor", "1.0", 2**30, {"fp16": "True"}, {}, ("float32",), ("float32",), ())
CHECKS = QuickChecks(
    9, 2, 1.5, {"float32": "add mul"}, (FailedCheck("forward/exp/float16", "exp", "float16", "exp(x)", "wrong"),)
)
REPORT = MachineReport(
    "2026-01-02",
    60.0,
    {"python": "3.11.0", "polyhal": "0.1.0"},
    {"system": "Linux 6.1", "machine": "x86_64", "processor": "a processor", "cores": "2"},
    (
        ReportedDevice("opencl:0", FACTS, CHECKS, (FIGURE, replace(FIGURE, what="attention", problem="no memory"))),
        ReportedDevice("opencl:1", None, None, (), "it does not open"),
    ),
    (Baseline("PyTorch 2.5", "cpu", (FIGURE,)),),
    ("backend wgpu: not installed",),
)


def test_a_report_reads_as_what_was_written(tmp_path: Path) -> None:
    machine_report.write(REPORT, tmp_path / "a.json")
    assert machine_report.read(tmp_path / "a.json") == REPORT
    assert not REPORT.brief
    assert replace(REPORT, seconds=5.0).brief


def _facts(tree: dict[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = tree["devices"][0]["facts"]
    return facts


DAMAGE: dict[str, Callable[[dict[str, Any]], object]] = {
    "date": lambda t: t.update(date="yesterday"),
    "number": lambda t: t["devices"][0]["benchmark"][0].update(value="fast"),
    "negative": lambda t: t["devices"][0]["checks"].update(passed=-1),
    "truth": lambda t: _facts(t).update(memory=True),
    "lines": lambda t: _facts(t).update(device="a\n# b"),
    "long": lambda t: _facts(t).update(driver="x" * 30_000),
    "kind": lambda t: _facts(t).update(type="toaster"),
    "missing": lambda t: t.pop("system"),
    "list": lambda t: t.update(devices={}),
    "mapping": lambda t: _facts(t).update(features=["fp16"]),
    "huge": lambda t: t.update(seconds=10**400),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_reports_are_refused(damage: str, tmp_path: Path) -> None:
    tree = json.loads(json.dumps(REPORT.to_json()))
    DAMAGE[damage](tree)
    (tmp_path / "a.json").write_text(json.dumps(tree))
    with pytest.raises(CorruptFileError, match=r"a\.json: .*not a report of devices"):
        machine_report.read(tmp_path / "a.json")


def test_another_schema_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(REPORT.to_json() | {"schema": 99}))
    with pytest.raises(IncompatibleFileError, match="schema 99"):
        machine_report.read(tmp_path / "a.json")


def test_the_page_says_what_ran_what_failed_and_how_fast() -> None:
    page = reported_devices.page([REPORT])
    (row,) = [line for line in page.splitlines() if line.startswith("| opencl:0")]
    cells = [c.strip() for c in row.strip("|").split("|")]
    assert cells[:3] == ["opencl:0: a GPU", "1.0", "2 of 3"]
    assert cells[3:] == ["-", "1,234", "-", "-", "-", "-", "-"]
    assert "- opencl:0, failed: forward/exp/float16: wrong" in page
    assert "- opencl:0, attention in float32: no memory" in page
    assert "- opencl:1: it does not open" in page
    assert "- missing: backend wgpu: not installed" in page
    assert "| PyTorch 2.5 (cpu) |" in page
    assert "brief" not in page.partition("## ")[2]
    assert "A brief report" in reported_devices.page([replace(REPORT, seconds=5.0)])


def test_text_of_strangers_is_no_markup() -> None:
    facts = replace(FACTS, device="x_64 | #1 [y](z) <script>` &amp;")
    page = reported_devices.page([replace(REPORT, devices=(ReportedDevice("a", facts, None, ()),))])
    assert "<script>" not in page
    assert "[y](z)" not in page
    (row,) = [line for line in page.splitlines() if line.startswith("| a:")]
    assert row.count("|") == 11
    assert html.unescape(row).startswith(f"| a: {facts.device} |")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["out.json"], "expected --report before the file"),
        (["--report", "--json"], "expected it without --json"),
        (["--report", "."], "is a folder"),
        (["--report", "x.json", "--seconds", "0"], "greater than or equal to 1"),
        (["--report", "/dev/null/x.json"], "/dev/null"),
    ],
)
def test_bad_input(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["doctor", *arguments]) == 2
    assert problem in capsys.readouterr().err


def test_the_first_checks_cover_every_op_and_then_the_contract() -> None:
    cases = select_cases(Device("numpy"), Scope(small=True), "*", RunRecord())
    ordered = spread(cases)
    assert sorted(c.id for c in ordered) == sorted(c.id for c in cases)
    contract = [c for c in ordered if not c.op]
    ops = {c.op for c in cases if c.op}
    first = ordered[: len(ops)]
    assert {c.op for c in first} == ops
    assert ordered[len(ops) : len(ops) + len(contract)] == contract
    with_float32 = {c.op for c in cases if c.dtype == "float32"}
    assert all(c.dtype in ("float32", "any") for c in first if c.op in with_float32)


TINY = workloads.ReportSize(2**8, 16, (1, 4, 6), (1, 2, 8, 4), (2, 8, 64))


@pytest.mark.parametrize("number", range(7))
def test_workloads_run_and_their_figures_agree_with_their_times(number: int, device: Device) -> None:
    workload = list(workloads.workloads(TINY))[number]
    figure = workloads.measure(workload, workloads.polyhal_framework(device), 0.01)
    scale = 1.0 if figure.unit == "samples/s" else 1e9
    # Both are rounded to four digits.
    assert figure.value == pytest.approx(workload.work / (figure.milliseconds * 1e-3) / scale, rel=2e-3)


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_both_frameworks_compute_the_same(number: int) -> None:
    """The compared runs must do equal work: outputs in float32 differ only by rounding."""
    pytest.importorskip("torch")
    import numpy as np

    workload = list(workloads.workloads(TINY))[number]
    _, _, pytorch = workloads.pytorch_framework()
    ours = workload.prepare(workloads.polyhal_framework(Device("numpy")))()
    theirs = workload.prepare(pytorch)()
    # Sums of at most 36 products of normal numbers, each below 20, in float32: 36 * 20 * 2**-24.
    np.testing.assert_allclose(ours.numpy(), theirs.cpu().numpy(), rtol=1e-5, atol=5e-5)  # type: ignore[attr-defined]
