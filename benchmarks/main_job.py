"""The main job as users run it: `polyhal train`, captured and with --eager, in processes of their own.

python -m benchmarks.main_job [--devices opencl:0] [--steps 200] [--json FILE]

Tokens per second are those of the second half of the steps, as the run's own log has them. The time to the first step is from
the start of the process, with caches as they are: the first run of each kind fills them and does not count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import describe, write
from benchmarks.measure import summarize
from polyhal import Device
from polyhal.hal.discovery.registry import registry

MODES = {"captured": [], "eager": ["--eager"]}


def train(device: str, steps: int, more: list[str]) -> tuple[float, float]:
    """Seconds until the first step was done, and tokens per second afterwards. Raises RuntimeError with what it says else."""
    with tempfile.TemporaryDirectory(prefix="polyhal-main-job-") as folder:
        place = Path(folder) / "run"
        command = [
            sys.executable, "-m", "polyhal", "train", "--device", device, "--steps", str(steps), "--log-every", "1",
            "--eval-every", str(steps), "--save-dir", str(place), *more,
        ]  # fmt: skip
        begun = time.perf_counter()
        process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert process.stdout is not None
        said, first = [], 0.0
        for line in process.stdout:
            said.append(line)
            if not first and line.startswith("step "):
                first = time.perf_counter() - begun
        if process.wait() or not first:
            raise RuntimeError("".join(said[-5:]))
        log = [json.loads(line) for line in (place / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        return first, statistics.median(entry["tokens_per_s"] for entry in log[len(log) // 2 :])


def measure(device: Device, steps: int, repetitions: int) -> dict[str, Any]:
    """One row of results, printed as well."""
    found: dict[str, list[tuple[float, float]]] = {mode: [] for mode in MODES}
    for turn in range(repetitions + 1):
        for mode, options in MODES.items():
            seen = train(device.name, steps, options)
            if turn:
                found[mode].append(seen)
    row: dict[str, Any] = {"device": device.name}
    for mode, seen in found.items():
        first, rate = (summarize(list(values)) for values in zip(*seen, strict=True))
        row[mode] = {
            "first_s": [first.median, first.low, first.high],
            "tokens_per_s": [rate.median, rate.low, rate.high],
        }
        print(
            f"{device.name:<12} {mode:<9} {rate.median:,.0f} tokens/s   first step after {first.median:.2f} s",
            flush=True,
        )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="", help="comma-separated device names; all devices by default")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    names = args.devices.split(",") if args.devices else [c.name for c in registry().candidates()]
    devices = [Device(n) for n in names]
    rows = [measure(d, args.steps, args.repetitions) for d in devices]
    write(args.json, {"benchmark": "main_job", "steps": args.steps, **describe(devices), "rows": rows})


if __name__ == "__main__":
    main()
