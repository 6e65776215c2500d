"""Layers compared with PyTorch: recurrent layers, convolutions, interpolation, scatter, einsum, embedding bags.

Every workload runs forward and with gradients of all its inputs and parameters, captured and eager, on the same data as
in PyTorch, which runs eagerly, compiled with `--compile`, and on CUDA as a CUDA graph. Competitors alternate.
"""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Sequence
from typing import Any

from benchmarks.arguments import make_parser, open_devices
from benchmarks.frameworks.layers import Call, polyhal_calls, torch_calls
from benchmarks.layer_workloads import LayerWorkload, workloads
from benchmarks.result_files import describe_machine, write
from benchmarks.suite import peak
from benchmarks.timing import TimingSummary, alternate
from polyhal import Device

_SAMPLE_SECONDS = 0.03


def competitors(
    workload: LayerWorkload, devices: Sequence[Device], backward: bool, compiled: bool
) -> tuple[dict[str, Call], dict[str, str]]:
    """Return calls by competitor, each run once, and why some are missing."""
    calls: dict[str, Call] = {}
    left_out: dict[str, str] = {}
    for device in devices:
        for mode, call in polyhal_calls(workload, device, backward).items():
            calls[f"{device.name} {mode}"] = call
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed and not measured")
        return calls, left_out
    gpu = any(d.type.value == "gpu" for d in devices) and torch.cuda.is_available()
    for name, call in torch_calls(workload, "cuda" if gpu else "cpu", backward, compiled).items():
        try:
            call()
        except Exception as error:  # a compiler may raise anything; the benchmark goes on without it
            left_out[name] = f"{type(error).__name__}: {error}".partition("\n")[0]
            continue
        calls[name] = call
    return calls, left_out


def measure(
    workload: LayerWorkload, devices: Sequence[Device], backward: bool, repetitions: int, compiled: bool
) -> dict[str, Any]:
    """Measure one workload in all competitors and print the results. Returns a row."""
    calls, left_out = competitors(workload, devices, backward, compiled)
    timings = alternate(calls, repetitions, warmups=3, min_seconds=_SAMPLE_SECONDS)
    nbytes, flops = workload.work(backward)
    name = workload.name + " and gradients" * backward
    print(_line(name, devices, timings), flush=True)
    calls.clear()
    gc.collect()
    for device in devices:
        device.empty_cache()
    return {
        "name": name,
        "shapes": [list(s) for s in workload.shapes],
        "nbytes": nbytes,
        "flops": flops,
        "seconds": {n: [t.median, t.low, t.high] for n, t in timings.items()},
        "left_out": left_out,
    }


def _line(name: str, devices: Sequence[Device], timings: dict[str, TimingSummary]) -> str:
    peers = [t.median for n, t in timings.items() if not n.startswith(tuple(d.name for d in devices))]
    parts = []
    for who, t in timings.items():
        speedup = f" {min(peers) / t.median:.2f}x" if peers and who.startswith(tuple(d.name for d in devices)) else ""
        spread = (t.high - t.low) / 2 / t.median
        parts.append(f"{who} {t.median * 1e3:.2f} ms ±{spread:.0%}{speedup}")
    return f"{name:<70} " + "   ".join(parts)


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("layers", __doc__)
    parser.add_argument("--size", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--only", default="", help="workloads whose name contains one of these, comma-separated")
    parser.add_argument("--compile", action="store_true", help="measure torch.compile, too; it takes long to compile")
    parser.add_argument("--repetitions", type=int, default=15)
    args = parser.parse_args(arguments)
    os.environ["POLYHAL_BUILD_AHEAD"] = "0"  # background builds would take cores from the measured programs
    warnings.filterwarnings("ignore", category=UserWarning)  # of PyTorch's, on memory formats and the like
    devices = open_devices(args.devices)
    limits = {d.name: peak.measure(d, args.size)._asdict() for d in devices}
    result: dict[str, Any] = {
        "benchmark": "layers",
        **describe_machine(devices),
        "limits": limits,
        "rows": [],
    }
    for workload in workloads(args.size):
        if not any(part in workload.name for part in args.only.split(",")):
            continue
        for backward in (False, True) if workload.differentiable else (False,):
            result["rows"].append(measure(workload, devices, backward, args.repetitions, args.compile))
            write(args.json, result)  # after every row, so that an interrupted run keeps its results
    return 0
