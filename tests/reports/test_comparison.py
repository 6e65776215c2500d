"""`polyhal bench`: ratios, shares of the roofline and tables, from events whose speeds are known."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pytest

from polyhal.cli.app import run
from polyhal.reports import comparison, workloads
from polyhal.reports.comparison import BenchedDevice, mean_ratio, ratio, shared_results
from polyhal.reports.machine_report import SpeedFigure
from polyhal.reports.supervision import TaskResult


def figure(what: str, value: float, unit: str = "GFLOP/s", size: str = "8") -> SpeedFigure:
    return SpeedFigure(what, "float32", size, value, unit, 1.0)


def events(title: str, factor: float, **facts: str) -> TaskResult:
    """Return the events of a device that is `factor` times as fast as the first."""
    speeds = [figure("memory", 10 * factor, "GB/s"), figure("product", 40 * factor), figure("attention", 25 * factor)]
    found: list[dict[str, Any]] = [{"event": "opened", "facts": {"device": title, "driver": "1.0"}, **facts}]
    found += [{"event": "figure", "item": f"{f.what}/float32", **asdict(f)} for f in speeds]
    found.append({"event": "figure", "item": "product/float16", "problem": "no time was left"})
    return TaskResult(found)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Any]]:
    """Replace the processes of the benchmark. Returns their requests."""
    requests: list[Mapping[str, Any]] = []

    def run_task(request: Mapping[str, Any], seconds: float) -> TaskResult:
        requests.append(request)
        if request["task"] == "baseline":
            return events("cpu", 0.5, name="PyTorch 2.0")
        if request["device"] == "numpy":
            return TaskResult(problem="the process ended by signal 9")
        rates = {"event": "rates", "flops": 8e10, "bandwidth": 1e10, "roofline": {"product/float32": 80.0}}
        found = events("Processor of a name that is longer than the column", 1.0)
        return TaskResult([*found.events, rates])

    monkeypatch.setattr(comparison, "run_task", run_task)
    return requests


def test_the_answer_is_first_and_all_lines_fit(
    measured: list[Mapping[str, Any]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["bench", "--device", "null"]) == 0
    assert [r["task"] for r in measured] == ["benchmark", "benchmark", "baseline"]
    out = capsys.readouterr().out
    first, *rest = out.splitlines()
    assert first.startswith("null (Processor")
    assert "is 2.0 times as fast as PyTorch 2.0" in first
    table = [line for line in rest if not line.startswith(("Measured", "null:"))]
    assert max(map(len, table)) <= 80
    (product,) = [line.split() for line in table if line.startswith("product")]
    assert product == ["product,", "float32", "40", "GFLOP/s", "50", "%", "2.0x"]
    assert "NumPy: the process ended by signal 9" in out
    assert "NVIDIA H200" in out


def test_json_has_the_same_figures(measured: list[Mapping[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--device", "null", "--seconds", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    shares = {f["what"]: f["share_of_roofline"] for f in found["device"]["figures"] if f["dtype"] == "float32"}
    assert shares == {"memory": None, "product": 0.5, "attention": None}
    assert [(p["name"], p["device_is_faster"]) for p in found["peers"]] == [("NumPy", None), ("PyTorch 2.0", 2.0)]
    assert len(found["shared"]) == len(list(shared_results()))


def test_a_device_that_runs_nothing(measured: list[Mapping[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--device", "numpy"]) == 1
    assert capsys.readouterr().out.startswith("numpy ran no workload: the process ended by signal 9\n")


def test_training_steps_of_unequal_size_are_not_compared() -> None:
    step, other = figure("training step", 6, "samples/s", "width 8"), figure("training step", 3, "samples/s", "width 4")
    assert ratio(step, other) is None
    assert ratio(step, step) == 1
    mine = BenchedDevice("a", "", "", (step, figure("product", 8), figure("memory", 2, "GB/s")))
    theirs = BenchedDevice("b", "", "", (other, figure("product", 1), figure("memory", 1, "GB/s", "9")))
    mean = mean_ratio(mine, theirs)
    assert mean is not None
    assert math.isclose(mean, math.sqrt(8 * 2))


def test_the_roofline_of_each_workload() -> None:
    """At 1e12 FLOP/s and 1e9 B/s, by hand: a product of n x n matrices has 2 n^3 / (3 * 4 n^2) = n / 6 FLOP per byte."""
    found = {w.name: w.roofline(1e12, 1e9) for w in workloads.workloads(workloads.SMALL)}
    assert found["memory/float32"] == 1
    assert found["product/float32"] == pytest.approx(1024 / 6)
    assert found["attention/float32"] == pytest.approx(512 / 4)  # 4 l^2 w FLOP and 4 * 4 l w bytes of each head
    assert found["training step/float32"] is None
    assert found["product/float16"] is None
