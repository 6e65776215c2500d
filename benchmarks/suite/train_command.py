"""`polyhal train` as users run it, captured and with --eager: tokens per second, and seconds to the first step.

Tokens per second are taken from the run's own log, over the second half of the steps. The time to the first step counts
from the start of the process, with warm caches: the first run of each kind fills them and is not counted.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.arguments import make_parser, open_devices
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import summarize
from polyhal import Device

MODES = {"captured": [], "eager": ["--eager"]}


def train(device: str, steps: int, options: list[str]) -> tuple[float, float]:
    """Run the command. Returns seconds to the first step and tokens per second afterwards.

    Raises RuntimeError with the command's output if it fails.
    """
    with tempfile.TemporaryDirectory(prefix="polyhal-train-command-") as folder:
        run = Path(folder) / "run"
        command = [
            sys.executable,
            "-m",
            "polyhal",
            "train",
            "--device",
            device,
            "--steps",
            str(steps),
            "--log-every",
            "1",
            "--eval-every",
            str(steps),
            "--save-dir",
            str(run),
            *options,
        ]
        begin = time.perf_counter()
        process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert process.stdout is not None
        lines, first = [], 0.0
        for line in process.stdout:
            lines.append(line)
            if not first and line.startswith("step "):
                first = time.perf_counter() - begin
        if process.wait() or not first:
            raise RuntimeError("".join(lines[-5:]))
        log = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        return first, statistics.median(entry["tokens_per_s"] for entry in log[len(log) // 2 :])


def measure(device: Device, steps: int, repetitions: int) -> dict[str, Any]:
    """Measure one device and print the results. Returns a row."""
    samples: dict[str, list[tuple[float, float]]] = {mode: [] for mode in MODES}
    for repetition in range(repetitions + 1):
        for mode, options in MODES.items():
            sample = train(device.name, steps, options)
            if repetition:
                samples[mode].append(sample)
    row: dict[str, Any] = {"device": device.name}
    for mode, pairs in samples.items():
        first, rate = (summarize(list(values)) for values in zip(*pairs, strict=True))
        row[mode] = {
            "first_s": [first.median, first.low, first.high],
            "tokens_per_s": [rate.median, rate.low, rate.high],
        }
        result = f"{rate.median:,.0f} tokens/s   first step after {first.median:.2f} s"
        print(f"{device.name:<12} {mode:<9} {result}", flush=True)
    return row


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("train_command", __doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repetitions", type=int, default=3)
    args = parser.parse_args(arguments)
    devices = open_devices(args.devices)
    rows = [measure(d, args.steps, args.repetitions) for d in devices]
    write(args.json, {"benchmark": "train_command", "steps": args.steps, **describe_machine(devices), "rows": rows})
    return 0
