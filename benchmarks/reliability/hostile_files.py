"""Hostile files: damaged and invented inputs of every format, read by processes under supervision.

An input must be read as it was written, or be refused by an error of Polyhal that names the problem. It must not raise
anything else, crash, hang, run or import code, touch files outside of its folder, or take memory out of proportion.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.reliability.fuzzing import coverage_guided
from benchmarks.reliability.fuzzing.registry_names import NAMES
from benchmarks.reliability.processes import ROOT, environment

_SILENCE = 120.0
"""Seconds without progress after which a process counts as hung, if its own limit of processor time does not end it."""
_POLL = 0.2


@dataclass(frozen=True, slots=True)
class HostileFilesResult:
    """Counts of a campaign."""

    inputs: int
    loaded: int
    refused: int
    guided: int
    """Further inputs that atheris made to reach other branches; 0 if it is not installed."""
    outcomes: dict[str, dict[str, int]]
    """How often each format was loaded, and refused by each error."""
    findings: tuple[str, ...]
    """Findings: format, number of the input, and the failure."""


@dataclass(slots=True)
class _Campaign:
    """Counts and findings so far."""

    seed: int
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    def add(self, line: dict[str, Any]) -> None:
        if "problem" in line:
            self.findings.append(f"{line['format']} {self.seed}/{line['input']}: {line['problem']}")
        else:
            self.outcomes.setdefault(line["format"], Counter()).update(line["outcomes"])


def hostile_files(inputs: int, seed: int = 0, formats: tuple[str, ...] = NAMES, guided: int = 0) -> HostileFilesResult:
    """Read inputs, the same number of each format. Equal seeds result in equal inputs.

    If atheris is installed, it looks for `guided` further inputs of each format whose parser is in Python.
    """
    campaign = _Campaign(seed)
    each = -(-inputs // len(formats))
    left = [[name, 0, each] for name in formats]
    while left:
        left = _read_some(campaign, left)
    outcomes = {name: dict(sorted(counts.items())) for name, counts in campaign.outcomes.items()}
    total = sum(sum(counts.values()) for counts in outcomes.values())
    loaded = sum(counts.get("loaded", 0) for counts in outcomes.values())
    guided = guided if coverage_guided.available() else 0
    if guided:
        problems = coverage_guided.search(guided, seed)
        campaign.findings += [f"{name}, found by its branches: {problem}" for name, problem in problems.items()]
    runs = guided * len(coverage_guided.FORMATS)
    return HostileFilesResult(total, loaded, total - loaded, runs, outcomes, tuple(campaign.findings))


def _read_some(campaign: _Campaign, inputs: list[list[Any]]) -> list[list[Any]]:
    """Read inputs in a process. Returns the remaining inputs if one crashed the process, which is a finding."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        request = json.dumps({"folder": folder, "seed": campaign.seed, "inputs": inputs})
        command = [sys.executable, "-m", "benchmarks.reliability.fuzzing.worker", request]
        own = environment(
            POLYHAL_DISABLE="opencl,wgpu",
            RUST_BACKTRACE="0",
            PYTHONDONTWRITEBYTECODE="1",  # otherwise the bytecode of late imports would count as written files
        )
        with (
            open(Path(folder) / "out", "w+b") as out,
            open(Path(folder) / "errors", "w+b") as errors,
            subprocess.Popen(command, env=own, cwd=ROOT, stdout=out, stderr=errors) as process,
        ):
            silent = _wait(process, Path(folder) / "progress")
            out.seek(0)
            for line in out:
                campaign.add(json.loads(line))
            errors.seek(0)
            stderr = errors.read().decode(errors="replace").strip()
        if process.returncode == 0:
            return []
        return _after(
            campaign, inputs, Path(folder) / "progress", silent or f"it ends by {process.returncode}: {stderr}"
        )


def _wait(process: subprocess.Popen[bytes], progress: Path) -> str:
    """Wait for the end of the process. Returns why it was killed, if it was."""
    last, since = b"", time.monotonic()
    while process.poll() is None:
        time.sleep(_POLL)
        now = progress.read_bytes() if progress.exists() else b""
        if now != last:
            last, since = now, time.monotonic()
        elif time.monotonic() - since > _SILENCE:
            process.kill()
            process.wait()
            return "it hangs without a way out"
    return ""


def _after(campaign: _Campaign, inputs: list[list[Any]], progress: Path, problem: str) -> list[list[Any]]:
    """Record the input that crashed a process. Returns the inputs after it."""
    if not progress.exists():
        raise RuntimeError(f"the worker did not start: {problem}")
    name, number = json.loads(progress.read_bytes())
    campaign.add({"format": name, "input": number, "problem": problem[:1000]})
    at = next(i for i, entry in enumerate(inputs) if entry[0] == name)
    (_, first, stop), rest = inputs[at], inputs[at + 1 :]
    campaign.outcomes.setdefault(name, Counter())["did not survive"] += number + 1 - first
    return [[name, number + 1, stop], *rest] if number + 1 < stop else rest


def lines(result: HostileFilesResult) -> Iterator[str]:
    """Return the result as text."""
    yield f"{result.inputs:,} inputs: {result.loaded:,} loaded, {result.refused:,} refused, {len(result.findings)} findings"
    for name, counts in result.outcomes.items():
        yield f"  {name}: {', '.join(f'{error} {n:,}' for error, n in counts.items())}"
    yield from result.findings


if __name__ == "__main__":
    start = time.perf_counter()
    for text in lines(hostile_files(int(sys.argv[1]), int((sys.argv[2:] or ["0"])[0]), tuple(sys.argv[3:]) or NAMES)):
        print(text)
    print(f"{time.perf_counter() - start:.0f} s")
