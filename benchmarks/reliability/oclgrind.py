"""Kernels under Oclgrind: an interpreter that finds data races, accesses out of bounds and uninitialised memory.

Continuous integration runs a few calls per op; here each op runs on all samples with few elements, in every dtype and layout.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.reliability.processes import ROOT, environment

_KIT = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "polyhal.hal.testing"]
_SCOPE = ["--polyhal-device=opencl:oclgrind", "--polyhal-small", "--polyhal-full"]
_EXPECTATIONS = ROOT / "tests" / "opencl" / "oclgrind.toml"
_MORE = {
    **dict.fromkeys(("abs/int8", "abs/int16"), "its compiler makes of it `llvm.abs`, which it does not interpret"),
    **dict.fromkeys(("sign/uint8", "sign/uint16"), "wrong for one element that is broadcast; right on two drivers"),
    **dict.fromkeys(
        ("relu_grad/float16", "relu_grad/bfloat16", "relu_grad/float64"), "compares a Python number with 0"
    ),
    "cross_entropy_rows_grad/bfloat16": "wrong in the steps that it is made of; right on two drivers",
}
"""Known defects of the interpreter, in addition to those in the file, that only further calls meet."""


@dataclass(frozen=True, slots=True)
class OclgrindResult:
    """Counts of a campaign."""

    version: str
    cases: int
    passed: int
    expected: int
    """Cases that fail because of known defects of the interpreter, or do not apply."""
    ops: int
    reports: int
    """Messages of the interpreter about races, bounds or uninitialised memory."""
    findings: tuple[str, ...]


def oclgrind(wanted: str = "contract or forward") -> OclgrindResult:
    """Run the kit's cases under Oclgrind. Raises RuntimeError if it is not installed."""
    command = shutil.which("oclgrind")
    if command is None:
        raise RuntimeError("Oclgrind is not installed: apt install oclgrind")
    with tempfile.TemporaryDirectory() as folder:
        log, report = Path(folder) / "log", Path(folder) / "report.xml"
        expectations = Path(folder) / "expectations.toml"
        more = "".join(f'"forward/{case}" = "{reason}"\n' for case, reason in _MORE.items())
        expectations.write_text(_EXPECTATIONS.read_text(encoding="utf-8") + more, encoding="utf-8")
        arguments = [*_SCOPE, f"--polyhal-expectations={expectations}", f"--junit-xml={report}", "-k", wanted]
        done = subprocess.run(
            [command, "--data-races", "--log", str(log), sys.executable, *_KIT, *arguments],
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if not report.exists():
            raise RuntimeError(f"the kit did not run: {(done.stdout + done.stderr)[-2000:]}")
        cases = list(ElementTree.parse(report).iter("testcase"))
        reports = log.read_text(errors="replace").splitlines() if log.exists() else []
    outcomes: Counter[str] = Counter()
    findings = []
    for case in cases:
        inside = {child.tag: child for child in case}
        kind = next((k for k in ("failure", "error", "skipped") if k in inside), "passed")
        outcomes[kind] += 1
        if kind in ("failure", "error"):
            findings.append(f"{case.get('name')}: {(inside[kind].get('message') or '')[:300]}")
    ops = {m[1] for case in cases if (m := re.search(r"forward/([^/\]]+)", case.get("name") or ""))}
    found = [line for line in reports if line.strip()]
    findings += [f"Oclgrind: {line}" for line in found[:20]]
    return OclgrindResult(
        _version(command), len(cases), outcomes["passed"], outcomes["skipped"], len(ops), len(found), tuple(findings)
    )


def _version(command: str) -> str:
    shown = subprocess.run([command, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"\d+\.\d+[\w.]*", shown)
    return match[0] if match else ""


if __name__ == "__main__":
    print(oclgrind(*sys.argv[1:]))
