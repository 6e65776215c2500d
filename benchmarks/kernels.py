"""The same ops on several devices and in other frameworks, in one run: rates, ratios, and shares of what is possible.

python -m benchmarks.kernels [--devices wgpu,opencl:pocl] [--size cpu|gpu] [--only matmul] [--clock wall|device] [--json FILE]

NumPy, PyTorch, tinygrad and netcl take part where they are installed. Every call works on the same random data. A sample
is a loop of calls, long enough for the clock; competitors take turns, so that a slow spell of the machine hits all alike.
The wall clock counts until the device is done; `--clock device` adds up what the device's own timestamps say of its
kernels, without the time between them.
"""

from __future__ import annotations

import argparse
import math
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.frameworks import Competitor, Runner, netcl_, numpy_, ours, pytorch, tinygrad_
from benchmarks.limits import Limits, limits
from benchmarks.machine import describe, write
from benchmarks.measure import Timing, summarize
from benchmarks.workloads import Workload, workloads
from polyhal import Device
from polyhal.hal.discovery.registry import registry

_SAMPLE_SECONDS = {"wall": 0.05, "device": 0.01}
"""How long one sample lasts, by clock. Some systems keep the waking threads of a pool on one core for the first while."""
_MOST_CALLS = 200
_TOO_SLOW = 1.0
"""Seconds of a single call from which on a competitor is left out."""
_MOST_TO_BUILD = 60.0
"""Seconds of a first call, which builds what has to be built, from which on it is not called again."""


def compare(
    workload: Workload, competitors: Mapping[str, Competitor], repetitions: int, clock: str
) -> tuple[dict[str, Timing], dict[str, str]]:
    """Seconds per call of every competitor that can do the work, and why the others cannot."""
    runners: dict[str, Runner] = {}
    left_out: dict[str, str] = {}
    calls = {}
    for name, competitor in competitors.items():
        try:
            runner = competitor.prepare(workload)
            if isinstance(runner, str):
                left_out[name] = runner
                continue
            first = runner.wall(1)
            second = runner.wall(1) if first < _MOST_TO_BUILD else first
        except Exception as error:  # other frameworks raise what they like; a benchmark of the others goes on
            left_out[name] = f"{type(error).__name__}: {error}"
            continue
        if second >= _TOO_SLOW:
            left_out[name] = f"takes {second:.0f} s"
            continue
        runners[name] = runner
        calls[name] = max(1, min(_MOST_CALLS, math.ceil(_SAMPLE_SECONDS[clock] / max(second, 1e-6))))
    samples: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(repetitions):
        for name, runner in runners.items():
            timer = runner.wall if workload.wall or clock == "wall" else runner.device
            timer(1)
            samples[name].append(timer(calls[name]))
            if clock == "wall":
                time.sleep(competitors[name].settle)
    return {name: summarize(s) for name, s in samples.items()}, left_out


def _line(workload: Workload, timings: Mapping[str, Timing], found: Mapping[str, Limits]) -> str:
    nbytes, flops = workload.work()
    parts = []
    peers = [t.median for n, t in timings.items() if n not in found]
    for name, t in timings.items():
        text = f"{name} {t.median * 1e6:.1f} us" if workload.wall else f"{name} {_rate(nbytes, flops, t.median)}"
        if name in found:
            limit = found[name].flops_per_s if flops else found[name].bytes_per_s
            if limit and workload.limited:
                text += f" ({(flops or nbytes) / t.median / limit:.0%})"
            if peers:
                text += f" {min(peers) / t.median:.2f}x"
        parts.append(text)
    return f"{workload.name:<30} " + "   ".join(parts)


def _rate(nbytes: int, flops: int, seconds: float) -> str:
    return f"{flops / seconds / 1e9:.0f} GFLOP/s" if flops else f"{nbytes / seconds / 1e9:.1f} GB/s"


def _row(workload: Workload, timings: Mapping[str, Timing], left_out: Mapping[str, str]) -> dict[str, Any]:
    nbytes, flops = workload.work()
    return {
        "name": workload.name, "op": workload.op, "shapes": [s for s in workload.shapes if s is not None],
        "dtype": workload.dtype, "nbytes": nbytes, "flops": flops, "wall": workload.wall, "limited": workload.limited,
        "seconds": {n: [t.median, t.low, t.high] for n, t in timings.items()}, "left_out": dict(left_out),
    }  # fmt: skip


def competitors(devices: Sequence[Device], gpu: bool) -> dict[str, Competitor]:
    """Our devices, then everything else that is installed."""
    return {
        **ours.competitors(devices), **numpy_.competitors(), **pytorch.competitors(gpu), **tinygrad_.competitors(),
        **netcl_.competitors(),
    }  # fmt: skip


def _use_as(device: Device, compute_capability: int) -> None:
    runtime: Any = device.backend.runtime  # type: ignore[attr-defined]
    runtime.features = replace(runtime.features, compute_capability=compute_capability)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="", help="comma-separated device names; all devices by default")
    parser.add_argument("--size", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--clock", choices=("wall", "device"), default="wall")
    parser.add_argument("--only", default="", help="workloads whose name contains one of these, separated by commas")
    parser.add_argument("--without", default="", help="competitors whose name contains one of these are left out")
    parser.add_argument(
        "--compute-capability", type=int, help="use an NVIDIA GPU as one of this, times ten: 80 for Ampere"
    )
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    os.environ["POLYHAL_BUILD_AHEAD"] = "0"  # helpers that compile would take cores from what is measured
    warnings.filterwarnings("ignore", message=".*compiler output.*")  # of programs that other frameworks build
    names = args.devices.split(",") if args.devices else [c.name for c in registry().candidates()]
    devices = [Device(n) for n in names]
    if args.compute_capability:
        for device in devices:
            _use_as(device, args.compute_capability)
    found = {d.name: limits(d, args.size) for d in devices}
    for name, limit in found.items():
        rates = f"copies {limit.bytes_per_s / 1e9:.1f} GB/s, multiplies and adds {limit.flops_per_s / 1e9:.0f} GFLOP/s"
        print(f"{name:<30} {rates}")
    unwanted = [w for w in args.without.split(",") if w]
    everyone = {
        n: c for n, c in competitors(devices, args.size == "gpu").items() if not any(w in n for w in unwanted)
    }  # fmt: skip
    result: dict[str, Any] = {
        "benchmark": "kernels", "clock": args.clock, "repetitions": args.repetitions, **describe(devices),
        "limits": {n: limit._asdict() for n, limit in found.items()}, "rows": [],
    }  # fmt: skip
    for workload in workloads(args.size):
        if not any(part in workload.name for part in args.only.split(",")):
            continue
        timings, left_out = compare(workload, everyone, args.repetitions, args.clock)
        print(_line(workload, timings, found), flush=True)
        result["rows"].append(_row(workload, timings, left_out))
        write(args.json, result)  # after every workload, so that an interrupted run leaves what it measured


if __name__ == "__main__":
    main()
