"""Training examples under the tools of NVIDIA's compute-sanitizer: `python -m benchmarks.reliability.sanitizers FILE.json`.

The tools instrument programs that call CUDA, so they check the kernels of the CuPy plug-in, but not OpenCL's: one run
on OpenCL shows that this is still so. Kernels in OpenCL C are checked by Oclgrind.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import result_files
from benchmarks.reliability.processes import ROOT
from polyhal import Device

RESULT = ROOT / "benchmarks" / "results" / "h200-sanitizers.json"

_RUNS = (
    ("memcheck", "digits_mlp.py", "50"),
    ("memcheck", "digits_cnn.py", "20"),
    ("memcheck", "sort_transformer.py", "20"),
    ("memcheck", "char_lstm.py", "10"),
    ("racecheck", "digits_mlp.py", "30"),
    ("initcheck", "digits_mlp.py", "30"),
    ("synccheck", "digits_cnn.py", "30"),
)
"""Tool, example, and steps: racecheck makes kernels a hundred times slower."""
_SUMMARY = re.compile(r"SUMMARY: (\d+) (?:errors?|hazards?)")


def run(tool: str, example: str, steps: str, device: str) -> dict[str, Any]:
    """Run an example under a tool. `problems` is how many the tool reports, None if it saw no call of CUDA."""
    program = [sys.executable, str(ROOT / "examples" / example), "--steps", steps, "--device", device]
    done = subprocess.run(["compute-sanitizer", "--tool", tool, *program], capture_output=True, text=True)
    found = _SUMMARY.search(done.stdout)
    row = {"tool": tool, "example": example, "steps": int(steps), "device": device}
    return row | {"problems": int(found[1]) if found else None}


def section(result: Mapping[str, Any]) -> Iterator[str]:
    """Return the lines of the page about a result."""
    devices = ", ".join(f"{d['name']} (`{name}`), {d['driver']}" for name, d in result["devices"].items())
    yield f"{result['date']}, {devices}:"
    yield ""
    yield "| tool | example | steps | device | problems |"
    yield "|---|---|---:|---|---:|"
    for row in result["rows"]:
        problems = "sees no kernel" if row["problems"] is None else f"{row['problems']:,}"
        yield f"| {row['tool']} | {row['example']} | {row['steps']} | `{row['device']}` | {problems} |"


def main(arguments: Sequence[str]) -> int:
    """Run all on the devices `cuda:0` and, once, `opencl:0`. Returns 1 if a tool reports a problem."""
    rows = []
    for tool, example, steps, device in (*((*r, "cuda:0") for r in _RUNS), (*_RUNS[0], "opencl:0")):
        rows.append(run(tool, example, steps, device))
        print(rows[-1], flush=True)
    devices = [Device("cuda:0"), Device("opencl:0")]
    path = Path(arguments[0]) if arguments else RESULT
    result_files.write(path, {"benchmark": "sanitizers", **result_files.describe_machine(devices), "rows": rows})
    return 1 if any(row["problems"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
