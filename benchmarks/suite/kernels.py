"""Single ops on several devices and in other frameworks: rates, ratios, and fractions of the device's peak.

NumPy, PyTorch, tinygrad and netcl take part if they are installed. Every call works on the same random data. A sample is a
loop of calls, long enough for the clock. Competitors alternate, so that a slow spell of the machine affects all
equally. The wall clock counts until the device is done; `--clock device` adds up the device's own timestamps of its
kernels, without the time between them; `--clock replay` replays a captured call many times in a row, in PyTorch a CUDA graph.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.arguments import make_parser, open_devices
from benchmarks.frameworks import Competitor, WorkloadRunner, netcl_, numpy_, ours, pytorch, tinygrad_
from benchmarks.op_workloads import OpWorkload, workloads
from benchmarks.result_files import describe_machine, write
from benchmarks.suite import peak
from benchmarks.suite.peak import Peak
from benchmarks.timing import TimingSummary, summarize
from polyhal import Device

_SAMPLE_SECONDS = {"wall": 0.05, "device": 0.01, "replay": 0.02}
"""Duration of one sample, by clock. Some systems keep the waking threads of a pool on one core at first."""
_MAX_CALLS = 2000
"""Maximum calls per sample."""
_MAX_CALL_SECONDS = 1.0
"""A competitor whose call takes longer is left out."""
_MAX_BUILD_SECONDS = 60.0
"""A competitor whose first call, which builds its kernels, takes longer is left out without a second call."""


def compare(
    workload: OpWorkload, competitors: Mapping[str, Competitor], repetitions: int, clock: str
) -> tuple[dict[str, TimingSummary], dict[str, str]]:
    """Time every competitor. Returns seconds per call, and why some competitors were left out."""
    runners: dict[str, WorkloadRunner] = {}
    left_out: dict[str, str] = {}
    calls = {}
    for name, competitor in competitors.items():
        try:
            runner = competitor.prepare(workload)
            if isinstance(runner, str):
                left_out[name] = runner
                continue
            first = runner.wall(1)
            second = runner.wall(1) if first < _MAX_BUILD_SECONDS else first
        except Exception as error:  # other frameworks may raise anything; the benchmark goes on without them
            left_out[name] = f"{type(error).__name__}: {error}"
            continue
        if second >= _MAX_CALL_SECONDS:
            left_out[name] = f"takes {second:.0f} s"
            continue
        runners[name] = runner
        calls[name] = max(1, min(_MAX_CALLS, math.ceil(_SAMPLE_SECONDS[clock] / max(second, 1e-6))))
    samples: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(repetitions):
        for name, runner in runners.items():
            timer = {"wall": runner.wall, "device": runner.device, "replay": runner.replayed}[
                "wall" if workload.wall else clock
            ]
            timer(1)
            samples[name].append(timer(calls[name]))
            if clock == "wall":
                time.sleep(competitors[name].settle)
    return {name: summarize(s) for name, s in samples.items()}, left_out


def _line(workload: OpWorkload, timings: Mapping[str, TimingSummary], peaks: Mapping[str, Peak]) -> str:
    nbytes, flops = workload.work()
    parts = []
    peers = [t.median for n, t in timings.items() if n not in peaks]
    for name, t in timings.items():
        text = f"{name} {t.median * 1e6:.1f} us" if workload.wall else f"{name} {_rate(nbytes, flops, t.median)}"
        if name in peaks:
            if limit := peaks[name].rate(workload.limit):
                text += f" ({(flops or nbytes) / t.median / limit:.0%})"
            if peers:
                text += f" {min(peers) / t.median:.2f}x"
        parts.append(text)
    return f"{workload.name:<30} " + "   ".join(parts)


def _rate(nbytes: int, flops: int, seconds: float) -> str:
    return f"{flops / seconds / 1e9:.0f} GFLOP/s" if flops else f"{nbytes / seconds / 1e9:.1f} GB/s"


def _row(workload: OpWorkload, timings: Mapping[str, TimingSummary], left_out: Mapping[str, str]) -> dict[str, Any]:
    nbytes, flops = workload.work()
    return {
        "name": workload.name,
        "op": workload.op,
        "shapes": [s for s in workload.shapes if s is not None],
        "dtype": workload.dtype,
        "nbytes": nbytes,
        "flops": flops,
        "wall": workload.wall,
        "limit": workload.limit,
        "seconds": {n: [t.median, t.low, t.high] for n, t in timings.items()},
        "left_out": dict(left_out),
    }


def competitors(devices: Sequence[Device], gpu: bool) -> dict[str, Competitor]:
    """Return Polyhal on its devices, then the other frameworks that are installed."""
    return {
        **ours.competitors(devices),
        **numpy_.competitors(),
        **pytorch.competitors(gpu),
        **tinygrad_.competitors(),
        **netcl_.competitors(),
    }


def _emulate(device: Device, compute_capability: int) -> None:
    """Use an NVIDIA GPU as if it had an older compute capability."""
    runtime: Any = device.backend.runtime  # type: ignore[attr-defined]
    runtime.features = replace(runtime.features, compute_capability=compute_capability)


def main(arguments: Sequence[str]) -> int:
    return run("kernels", __doc__, workloads, arguments)


def run(
    name: str, description: str | None, workloads_of: Callable[[str], Sequence[OpWorkload]], arguments: Sequence[str]
) -> int:
    """Time the workloads that `workloads_of` returns for a size, and write the result of the benchmark `name`."""
    parser = make_parser(name, description)
    parser.add_argument("--size", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--clock", choices=tuple(_SAMPLE_SECONDS), default="wall")
    parser.add_argument("--only", default="", help="workloads whose name contains one of these, comma-separated")
    parser.add_argument("--without", default="", help="leave out competitors whose name contains one of these")
    parser.add_argument(
        "--compute-capability", type=int, help="use an NVIDIA GPU as if it had this one, times ten: 80 for Ampere"
    )
    parser.add_argument("--repetitions", type=int, default=20)
    args = parser.parse_args(arguments)
    os.environ["POLYHAL_BUILD_AHEAD"] = "0"  # background builds would take cores from the measured programs
    warnings.filterwarnings("ignore", message=".*compiler output.*")  # of programs that other frameworks build
    devices = open_devices(args.devices)
    if args.compute_capability:
        for device in devices:
            _emulate(device, args.compute_capability)
    peaks = {d.name: peak.measure(d, args.size) for d in devices}
    for device_name, limit in peaks.items():
        fma = f", multiply-adds {limit.flops_per_s / 1e9:.0f} GFLOP/s" if limit.flops_per_s else ""
        print(f"{device_name:<30} copies {limit.bytes_per_s / 1e9:.1f} GB/s{fma}")
    excluded = [name for name in args.without.split(",") if name]
    chosen = {
        n: c for n, c in competitors(devices, args.size == "gpu").items() if not any(name in n for name in excluded)
    }
    result: dict[str, Any] = {
        "benchmark": name,
        "clock": args.clock,
        "repetitions": args.repetitions,
        **describe_machine(devices),
        "limits": {n: limit._asdict() for n, limit in peaks.items()},
        "rows": [],
    }
    for workload in workloads_of(args.size):
        if not any(part in workload.name for part in args.only.split(",")):
            continue
        timings, left_out = compare(workload, chosen, args.repetitions, args.clock)
        print(_line(workload, timings, peaks), flush=True)
        result["rows"].append(_row(workload, timings, left_out))
        write(args.json, result)  # after every workload, so that an interrupted run keeps its results
    return 0
