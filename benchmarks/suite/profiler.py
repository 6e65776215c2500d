"""Overhead of `polyhal.profile`: training steps with and without a profile, eager and captured.

Samples alternate, and the beginning and the end of a profile are not part of them. Exits with code 1 if the ratio of the
medians of the processor's time, which other programs hardly disturb, exceeds the limit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import polyhal
from benchmarks.arguments import make_parser, open_devices
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import summarize
from benchmarks.training_workloads import WORKLOADS, Step
from polyhal import Device

LIMIT = 1.10
"""Largest ratio of a step in a profile to the step without one."""
MODELS = ("mlp", "cnn", "gpt")
"""Training steps of `benchmarks.training_workloads`, from one whose time is the host's to one whose time is the kernels'."""
_BEFORE = 4
"""Calls before the first sample: a captured step is recorded twice."""
_SECONDS = 0.05
"""Least time of a sample."""


def samples(device: Device, step: Step, repetitions: int) -> dict[str, list[tuple[float, float]]]:
    """Return seconds and processor seconds per step, without and with a profile, in alternation."""
    found: dict[str, list[tuple[float, float]]] = {"without": [], "with": []}
    begin = time.perf_counter()
    step()
    count = max(int(_SECONDS / (time.perf_counter() - begin)), 1)
    for _ in range(repetitions):
        for name, times in found.items():
            with polyhal.profile(device) if name == "with" else nullcontext():
                begin, used = time.perf_counter(), time.process_time()
                for _ in range(count):
                    step()
                times.append(((time.perf_counter() - begin) / count, (time.process_time() - used) / count))
    return found


def measure(device: Device, models: Sequence[str], repetitions: int) -> list[dict[str, Any]]:
    """Measure the steps of a device, both ways, and print the results."""
    rows = []
    print(f"{device.name}: {device.info.name}, {device.info.driver}")
    for model in models:
        for how in ("eager", "captured"):
            step = WORKLOADS[model].polyhal_step(device, "highest", captured=how == "captured")
            for _ in range(_BEFORE):
                step()
            found = samples(device, step, repetitions)
            row: dict[str, Any] = {"device": device.name, "model": WORKLOADS[model].what, "how": how}
            print(f"  {model:<15} {how:<9}", end="")
            for column, kind in enumerate(("elapsed", "processor")):
                timings = {name: summarize([times[column] for times in found[name]]) for name in found}
                ratio = timings["with"].median / timings["without"].median
                row[kind] = {"ratio": ratio, **{f"{name}_ms": t.median * 1e3 for name, t in timings.items()}}
                texts = ", ".join(f"{name} {t.text(1e3, 'ms')}" for name, t in timings.items())
                print(f"  {kind} {ratio:.3f} ({texts})", end="", flush=True)
            print()
            rows.append(row)
    return rows


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("profiler", __doc__)
    parser.add_argument("--repetitions", type=int, default=20, help="samples of each kind")
    parser.add_argument("--models", nargs="+", choices=WORKLOADS, default=MODELS, help="training steps")
    args = parser.parse_args(arguments)
    devices = open_devices(args.devices)
    rows = [row for device in devices for row in measure(device, args.models, args.repetitions)]
    write(args.json, {"benchmark": "profiler", **describe_machine(devices), "rows": rows})
    return 0 if all(row["processor"]["ratio"] <= LIMIT for row in rows) else 1
