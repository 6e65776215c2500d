"""A report is complete whatever devices do, and says nothing about whose they are."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from leaky_plugin import install

from polyhal.cli.app import run
from polyhal.hal.system.discovery.registry import Registry
from polyhal.reports import collect, machine_report, worker
from polyhal.reports.supervision import StopCondition, run_task

SECRETS = {
    "API_TOKEN": "tk-91f3aa",
    "DB_PASSWORD": "hunter2hunter2",
    "USER": "ada.lovelace",
    "HOSTNAME": "babbage-7.example.org",
}
PERSONAL = [
    *SECRETS.values(),
    "babbage-7",
    "/home/ada.lovelace/models/secret project",
    "C:\\Users\\Ada\\driver.dll",
    "GPU-5f1c3e9a-77aa-4b8d-9c1e-0123456789ab",
    "0000:65:00.0",
    "serial: 1324820034987",
    "52:54:00:12:34:56",
    "ada@example.org",
]


@pytest.fixture(autouse=True)
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a backend that tells everything, and no other."""
    install(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("POLYHAL_DISABLE", "opencl,wgpu,numpy,sim,null")
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LEAKY_TEXT", " ".join(PERSONAL))
    monkeypatch.setenv("LEAKY_DEVICES", "plain")


def test_a_crash_and_a_hang_cost_a_check_each() -> None:
    request = {"task": "check", "device": "leaky", "only": "forward/s[iq]*[nt]/float32"}
    result = run_task(request, 600.0, limit=5.0)
    assert result.problem == ""
    assert set(result.deaths) == {"forward/sin/float32", "forward/sqrt/float32"}
    assert "SIGSEGV" in result.deaths["forward/sin/float32"]
    assert result.deaths["forward/sqrt/float32"] == "no answer within 5 s"
    passed = {e["item"] for e in result.of("checked") if not e["problem"]}
    assert "forward/sign/float32" in passed
    found = collect.checks(result)
    assert {(f["op"], f["dtype"]) for f in found["failures"]} == {("sin", "float32"), ("sqrt", "float32")}
    assert found["passed"] == len(passed)
    assert "sign" in found["passed_ops"]["float32"]
    assert "sin" not in found["passed_ops"]["float32"]


def test_an_item_in_progress_at_the_end_of_the_time_is_not_a_failure() -> None:
    request = {"task": "check", "device": "leaky", "only": "forward/sqrt/float32"}
    result = run_task(request, 600.0, stop=StopCondition(time.monotonic() + 4.0))
    assert result.deaths == {}
    assert result.problem == "stopped at the end of its time, in forward/sqrt/float32"
    assert result.seconds < 8.0
    assert collect.checks(result)["failures"] == []


@pytest.mark.slow
def test_a_report_of_slow_devices_ends_in_time_and_a_request_to_stop_keeps_the_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collect, "registry", Registry)
    monkeypatch.setenv("LEAKY_DEVICES", "slow slow2")
    parts: list[str] = []
    begin = time.monotonic()
    reports = list(collect.collect(20.0, parts.append, lambda: "leaky:slow2: checks" in parts))
    assert time.monotonic() - begin < 24.0
    assert [len(r.devices) for r in reports] == [1, 2, 2]
    slow, unbegun = reports[-1].devices
    assert slow.checks is not None
    assert slow.checks.problem.startswith("stopped at the end of its time, in ")
    assert slow.checks.failures == ()
    assert unbegun.problem == "interrupted"
    assert unbegun.facts is not None
    assert reports[-1].problems[-1] == "PyTorch: interrupted"


def test_a_wrong_op_is_named_with_its_dtype() -> None:
    result = run_task({"task": "check", "device": "leaky", "only": "forward/floor/*"}, 600.0)
    failures = collect.checks(result)["failures"]
    assert {(f["op"], f["dtype"]) for f in failures} >= {("floor", "float32"), ("floor", "float16")}
    assert all(f["problem"].startswith("BackendError: floor fails") and "floor(" in f["call"] for f in failures)


def test_a_report_is_written_and_keeps_what_is_personal_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(collect, "registry", Registry)
    monkeypatch.setenv("LEAKY_DEVICES", "refusing dead")
    monkeypatch.chdir(tmp_path)
    assert run(["doctor", "--report", "out.json", "--seconds", "14"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "written: out.json" in out
    assert "open an issue in the project's issue tracker" in out
    text = Path("out.json").read_text(encoding="utf-8")
    for name in [*PERSONAL, "lovelace", "0323418", "1324820034987", "pci_slot", "uuid", str(tmp_path)]:
        assert name.lower() not in text.lower(), name
    assert not re.search(r"\bada\b", text, re.IGNORECASE), "the user's name; ops such as adagrad may be listed"
    report = machine_report.read(Path("out.json"))
    assert json.loads(json.dumps(report.to_json())) == json.loads(text)
    devices = {d.name: d for d in report.devices}
    refusing, dead = devices["leaky:refusing"], devices["leaky:dead"]
    assert refusing.facts is not None
    assert refusing.facts.device.startswith("GPU 9000 ")
    assert refusing.facts.features["fp16"] == "True"
    assert refusing.checks is not None
    assert refusing.checks.passed > 0
    assert any("<secret> <name> <name>" in f.problem for f in refusing.checks.failures)
    assert {f.what for f in refusing.benchmark} >= {"memory", "product"}
    assert all("no " in f.problem for f in refusing.benchmark if f.what in ("memory", "product"))
    assert dead.checks is None
    assert "SIGSEGV" in dead.problem
    assert dead.facts is not None
    assert dead.facts.driver.startswith("7.1 ")


def test_lines_of_drivers_and_torn_lines_are_left_out() -> None:
    lines = ["compiling...\n", f'{worker.MARK}{{"event": "end"}}\n', f'{worker.MARK}{{"event": "be']
    assert list(worker.parse("".join(lines))) == [{"event": "end"}]
