"""Whole training steps: captured, eager, and PyTorch's on the same machine in the same run; time, peak memory, first step.

python -m benchmarks.training [--devices opencl:0,numpy] [--models gpt,cnn,mlp] [--precisions highest] [--json FILE]
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.machine import describe, write
from benchmarks.measure import Timing, alternate
from benchmarks.training_steps import PRECISIONS, WORKLOADS, Step, Workload, ours, torchs
from polyhal import Device
from polyhal.hal.discovery.registry import registry

_SAMPLE_SECONDS = 0.05
_STEPS_TO_THE_PEAK = 4
"""A captured step is recorded twice before it only replays."""


def _ours(workload: Workload, device: Device, precision: str, captured: bool) -> tuple[Step, dict[str, float]]:
    """A step that has run, with the bytes it needed at most and the seconds until its first run had ended."""
    device.empty_cache()
    before = device.memory_stats().used
    begun = time.perf_counter()
    step = ours(workload, device, precision, captured=captured)
    step()
    first = time.perf_counter() - begun
    for _ in range(_STEPS_TO_THE_PEAK):
        step()
    device.pool.reset_peak()
    step()
    return step, {"peak": device.memory_stats().peak - before, "first_s": first}


def _torchs(workload: Workload, place: str, precision: str, graph: bool) -> tuple[Step, dict[str, float]]:
    import torch

    if place != "cuda":
        return torchs(workload, place, precision, graph=graph), {}
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    step = torchs(workload, place, precision, graph=graph)
    step()
    torch.cuda.reset_peak_memory_stats()
    step()
    # A recorded step's memory is its own from the recording on.
    return step, {"peak": torch.cuda.max_memory_allocated() - before} if not graph else {}


def competitors(
    workload: Workload, device: Device, precision: str
) -> dict[str, Callable[[], tuple[Step, dict[str, float]]]]:
    """Who runs the step, ready to be made."""
    found: dict[str, Callable[[], tuple[Step, dict[str, float]]]] = {
        "captured": lambda: _ours(workload, device, precision, True),
        "eager": lambda: _ours(workload, device, precision, False),
    }
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed: nothing to compare with")
        return found
    place = "cuda" if device.type.value == "gpu" and torch.cuda.is_available() else "cpu"
    found["PyTorch"] = lambda: _torchs(workload, place, precision, False)
    if place == "cuda":
        found["PyTorch, CUDA graph"] = lambda: _torchs(workload, place, precision, True)
    return found


def measure(workload: Workload, device: Device, precision: str, repetitions: int) -> dict[str, Any]:
    """One row of results, printed as well."""
    steps, facts = {}, {}
    for who, make in competitors(workload, device, precision).items():
        steps[who], facts[who] = make()
    timings = alternate(steps, repetitions, lasting=_SAMPLE_SECONDS)
    row: dict[str, Any] = {
        "model": workload.name, "what": workload.what, "device": device.name, "precision": precision, "items": workload.items,
        "tokens": workload.config is not None, "who": {},
    }  # fmt: skip
    for who, t in timings.items():
        row["who"][who] = {"ms": t.median * 1e3, "low_ms": t.low * 1e3, "high_ms": t.high * 1e3, **facts[who]}
        print(
            f"{device.name:<12} {workload.name:<8} {precision:<9} {who:<20} {_line(workload, t, facts[who])}",
            flush=True,
        )
    steps.clear()
    gc.collect()
    device.empty_cache()
    return row


def _line(workload: Workload, t: Timing, facts: dict[str, float]) -> str:
    text = f"{t.text(1e3, 'ms')}  {workload.items / t.median:,.0f} a second"
    if "peak" in facts:
        text += f"  peak {facts['peak'] / 2**20:,.0f} MiB"
    return text + (f"  first step {facts['first_s']:.2f} s" if "first_s" in facts else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="", help="comma-separated device names; all devices by default")
    parser.add_argument("--models", default="mlp,cnn,gpt", help=f"some of {', '.join(WORKLOADS)}")
    parser.add_argument(
        "--precisions", default="highest", help=f"some of {', '.join(PRECISIONS)}; bfloat16 is autocast"
    )
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    os.environ["POLYHAL_BUILD_AHEAD"] = "0"  # helpers that compile would take cores from what is measured
    names = args.devices.split(",") if args.devices else [c.name for c in registry().candidates()]
    devices = [Device(n) for n in names]
    result: dict[str, Any] = {"benchmark": "training", **describe(devices), "rows": []}
    for model in args.models.split(","):
        for precision in args.precisions.split(","):
            for device in devices:
                result["rows"].append(measure(WORKLOADS[model], device, precision, args.repetitions))
                write(args.json, result)  # after every row, so that an interrupted run leaves what it measured


if __name__ == "__main__":
    main()
