"""Collection of a report. Each driver runs in separate processes, because it may crash or hang."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from polyhal.devices import distributions, processor_model, registry
from polyhal.hal.hookspecs import BackendSpec
from polyhal.reports.machine_report import CHECKS_WEIGHT, FULL_SECONDS, SCHEMA, MachineReport
from polyhal.reports.privacy import Scrubber
from polyhal.reports.supervision import StopCondition, TaskResult, run_task

_LISTING = 60.0
"""Timeout in seconds for a backend to list its devices."""
_START = 3.0
"""Seconds for a task to start its process and to open its device, in addition to its share of the time for items."""
_EXCESS = 1.5
"""Multiple of its share after which a task is stopped, so that slow builds of one device leave time to the others."""
_OTHERS = ("torch",)
"""Distributions whose versions are reported in addition to the requirements of Polyhal and its plug-ins."""
_FIGURE: dict[str, Any] = {"size": "", "value": 0.0, "unit": "", "milliseconds": 0.0, "problem": ""}


class _Timetable:
    """Division of a report's time among its tasks by weight. A task that takes longer leaves less to later tasks."""

    def __init__(self, seconds: float, requested: Callable[[], bool]) -> None:
        self.end = time.monotonic() + seconds
        self.requested = requested
        self.weights: list[float] = []
        """Weights of tasks that have not begun."""

    def run(
        self, request: Mapping[str, Any], weight: float, environment: Mapping[str, str] | None = None
    ) -> TaskResult:
        """Run a task of `worker` for its share of the time that is left."""
        now = time.monotonic()
        left = max(self.end - now, 0.0)
        start = min(_START, left / len(self.weights) / 2)
        items = (left - start * len(self.weights)) * weight / sum(self.weights)
        self.weights.remove(weight)
        stop = StopCondition(min(now + _EXCESS * (start + items), self.end), self.requested)
        return run_task(request, items, environment=environment, stop=stop)

    def skip(self, weight: float, problem: str) -> TaskResult:
        """Leave the time of a task to later tasks. Returns its result, the problem."""
        self.weights.remove(weight)
        return TaskResult(problem=problem)

    def list_devices(self, backend: str) -> TaskResult:
        """List the devices of a backend."""
        stop = StopCondition(self.end, self.requested)
        return run_task({"task": "list", "backend": backend}, 0.0, limit=0.0, start=_LISTING, stop=stop)


def collect(
    seconds: float = FULL_SECONDS,
    progress: Callable[[str], object] = lambda text: None,
    requested: Callable[[], bool] = lambda: False,
) -> Iterator[MachineReport]:
    """Examine all devices for at most about `seconds`. Yields the report after each device, the last one complete.

    Benchmarks take a quarter of the time, checks the rest. Builds of kernels count: a task that exceeds its share is
    stopped, and its problem names the item. `progress` receives the name of each part. A true result of `requested` ends
    the report early, with the results so far. Failures of devices do not raise; the report contains them.
    """
    scrub, table = Scrubber(), _Timetable(seconds, requested)
    backends = {name: spec for name, spec in registry().backends.items() if not spec.hidden}
    listed, problems = _listed(backends, table, progress)
    table.weights = [CHECKS_WEIGHT, 1.0] * len(listed) + [1.0]
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "date": datetime.now(UTC).date().isoformat(),
        "seconds": seconds / (CHECKS_WEIGHT + 1),
        "versions": _versions(),
        "system": _system(),
        "devices": [],
        "baselines": [],
        "problems": problems,
    }
    for name, facts in listed.items():
        found["devices"].append(_device(name, facts, table, scrub, progress))
        yield _scrubbed(found, scrub)
    progress("PyTorch: benchmark")
    found["baselines"] = _baselines(table.run({"task": "baseline"}, 1.0), problems)
    yield _scrubbed(found, scrub)


def _scrubbed(found: dict[str, Any], scrub: Scrubber) -> MachineReport:
    clean = scrub.data(found)
    for device in clean["devices"]:
        if device["checks"] is not None:
            device["checks"]["passed_ops"] = {d: " ".join(ops) for d, ops in device["checks"]["passed_ops"].items()}
    return MachineReport.from_json(clean)


def _listed(
    backends: Mapping[str, BackendSpec], table: _Timetable, progress: Callable[[str], object]
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return facts by name of device, and descriptions of backends and devices that are missing."""
    facts: dict[str, dict[str, Any]] = {}
    problems = [f"{f.source}: {f.reason}" for f in registry().failures]
    for backend in backends:
        progress(f"devices of {backend}")
        result = table.list_devices(backend)
        facts |= {e["name"]: e["facts"] for e in result.of("listed")}
        problems += [e["problem"] for e in result.of("failure")]
        if result.problem:
            problems.append(f"backend {backend}: {result.problem}")
    return facts, list(dict.fromkeys(problems))


def _device(
    name: str, facts: dict[str, Any], table: _Timetable, scrub: Scrubber, progress: Callable[[str], object]
) -> dict[str, Any]:
    """Examine one device: checks, then the benchmark, with an empty kernel cache for both."""
    folder = tempfile.mkdtemp()
    try:
        settings = {"POLYHAL_CACHE_DIR": folder}
        progress(f"{name}: checks")
        checked = table.run({"task": "check", "device": name}, CHECKS_WEIGHT, settings)
        opened = checked.of("facts")
        progress(f"{name}: benchmark")
        if opened:
            measured = table.run({"task": "benchmark", "device": name}, 1.0, settings)
        else:
            measured = table.skip(1.0, checked.problem)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    known = opened[-1]["facts"] if opened else facts
    return {
        "name": name,
        "facts": {**known, "features": scrub.features(known["features"])},
        "checks": checks(checked) if opened else None,
        "benchmark": figures(measured),
        "problem": measured.problem,
    }


def checks(result: TaskResult) -> dict[str, Any]:
    """Return the results of checks, in the form of `QuickChecks`."""
    ran = result.of("checked")
    failures = [{k: e[v] for k, v in _FAILURE.items()} for e in ran if e["problem"]]
    failures += [_death(case, ending) for case, ending in result.deaths.items()]
    failed = {(f["op"], f["dtype"]) for f in failures}
    ops: dict[str, list[str]] = {}
    for op, dtype in sorted({(e["op"], e["dtype"]) for e in ran if e["op"]} - failed):
        ops.setdefault(dtype, []).append(op)
    return {
        "selected": result.of("selected")[-1]["count"] if result.of("selected") else 0,
        "passed": sum(not e["problem"] for e in ran),
        "seconds": result.seconds,
        "passed_ops": ops,
        "failures": failures,
        "problem": result.problem,
    }


_FAILURE = {"case": "item", "op": "op", "dtype": "dtype", "call": "call", "problem": "problem"}


def _death(case: str, ending: str) -> dict[str, str]:
    kind, *rest = case.split("/")
    op, dtype = (*rest, "any")[:2] if kind != "contract" else ("", "any")
    return {"case": case, "op": op, "dtype": dtype, "call": "", "problem": ending}


def figures(result: TaskResult) -> list[dict[str, Any]]:
    """Return the results of a benchmark, including failed workloads, in the form of `SpeedFigure`."""
    found = []
    failed = [{"item": name, "problem": ending} for name, ending in result.deaths.items()]
    for event in result.of("figure") + failed:
        what, _, dtype = event["item"].partition("/")
        found.append({"what": what, "dtype": dtype, **{k: event.get(k, v) for k, v in _FIGURE.items()}})
    return found


def _baselines(result: TaskResult, problems: list[str]) -> list[dict[str, Any]]:
    """Return the results of PyTorch, if it is installed. `problems` receives why its process did not report any."""
    if result.problem and not result.of("baseline"):
        problems.append(f"PyTorch: {result.problem}")
    return [
        {"name": e["name"], "device": e["device"], "benchmark": figures(result), "problem": result.problem}
        for e in result.of("baseline")[:1]
    ]


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in (*distributions(registry()), *_OTHERS):
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _system() -> dict[str, str]:
    system = {
        "system": f"{platform.system()} {_release(platform.release())}",
        "machine": platform.machine(),
        "processor": processor_model(),
        "cores": str(os.cpu_count()),
    }
    with suppress(OSError):
        system["distribution"] = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    return system


def _release(text: str) -> str:
    """Return the number of a kernel's version, and a mark for WSL; the rest is arbitrary text of its builder."""
    number = re.match(r"[\d.]*", text)
    return (number[0] if number else "") + (" (WSL)" if "microsoft" in text.lower() else "")


def summary(report: MachineReport) -> Sequence[str]:
    """Summarize a report, one line per device."""
    return [_line(d.name, d.checks, d.problem, d.benchmark) for d in report.devices] + [
        _line(f"{b.name} ({b.device})", None, b.problem, b.benchmark) for b in report.baselines
    ]


def _line(name: str, checks: Any, problem: str, benchmark: Sequence[Any]) -> str:
    parts = [problem] if problem else []
    if checks is not None:
        parts.append(f"{checks.passed} checks passed, {len(checks.failures)} failed")
    parts.append(f"{sum(not f.problem for f in benchmark)} workloads measured")
    return f"{name}: {', '.join(parts)}"
