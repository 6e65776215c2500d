"""Whole training steps, captured, eager, and in PyTorch: time, peak memory, and time to the first step."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from benchmarks.arguments import choices, make_parser, open_devices
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import TimingSummary, alternate
from benchmarks.training_workloads import PRECISIONS, WORKLOADS, Step, TrainingWorkload, polyhal_step, torch_step
from polyhal import Device

_SAMPLE_SECONDS = 0.05
_STEPS_BEFORE_PEAK = 4
"""A captured step is recorded twice before it is only replayed."""
Facts = dict[str, float]
"""Figures of a step in addition to its time: "peak" in bytes, "first_s" in seconds."""


def _prepare(workload: TrainingWorkload, device: Device, precision: str, captured: bool) -> tuple[Step, Facts]:
    """Prepare and run a step of Polyhal, measuring its peak memory and the time to the end of its first run."""
    device.empty_cache()
    before = device.memory_stats().used
    begin = time.perf_counter()
    step = polyhal_step(workload, device, precision, captured=captured)
    step()
    first = time.perf_counter() - begin
    for _ in range(_STEPS_BEFORE_PEAK):
        step()
    device.pool.reset_peak()
    step()
    return step, {"peak": device.memory_stats().peak - before, "first_s": first}


def _prepare_torch(workload: TrainingWorkload, place: str, precision: str, graph: bool) -> tuple[Step, Facts]:
    """Prepare and run a step of PyTorch, measuring its peak memory on CUDA."""
    import torch

    if place != "cuda":
        return torch_step(workload, place, precision, graph=graph), {}
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    step = torch_step(workload, place, precision, graph=graph)
    step()
    torch.cuda.reset_peak_memory_stats()
    step()
    # A CUDA graph owns its memory since the capture, so its peak cannot be measured here.
    return step, {"peak": torch.cuda.max_memory_allocated() - before} if not graph else {}


def competitors(
    workload: TrainingWorkload, device: Device, precision: str
) -> dict[str, Callable[[], tuple[Step, Facts]]]:
    """Return functions that prepare a step each, by competitor."""
    prepare: dict[str, Callable[[], tuple[Step, Facts]]] = {
        "captured": lambda: _prepare(workload, device, precision, True),
        "eager": lambda: _prepare(workload, device, precision, False),
    }
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed and not measured")
        return prepare
    place = "cuda" if device.type.value == "gpu" and torch.cuda.is_available() else "cpu"
    prepare["PyTorch"] = lambda: _prepare_torch(workload, place, precision, False)
    if place == "cuda":
        prepare["PyTorch, CUDA graph"] = lambda: _prepare_torch(workload, place, precision, True)
    return prepare


def measure(workload: TrainingWorkload, device: Device, precision: str, repetitions: int) -> dict[str, Any]:
    """Measure one step in all competitors and print the results. Returns a row."""
    steps, facts = {}, {}
    for who, prepare in competitors(workload, device, precision).items():
        steps[who], facts[who] = prepare()
    timings = alternate(steps, repetitions, min_seconds=_SAMPLE_SECONDS)
    row: dict[str, Any] = {
        "model": workload.name,
        "what": workload.what,
        "device": device.name,
        "precision": precision,
        "items": workload.items,
        "tokens": workload.config is not None,
        "who": {},
    }
    for who, t in timings.items():
        row["who"][who] = {"ms": t.median * 1e3, "low_ms": t.low * 1e3, "high_ms": t.high * 1e3, **facts[who]}
        title = f"{device.name:<12} {workload.name:<8} {precision:<9} {who:<20}"
        print(f"{title} {_line(workload, t, facts[who])}", flush=True)
    steps.clear()
    gc.collect()
    device.empty_cache()
    return row


def _line(workload: TrainingWorkload, t: TimingSummary, facts: Facts) -> str:
    text = f"{t.text(1e3, 'ms')}  {workload.items / t.median:,.0f} per second"
    if "peak" in facts:
        text += f"  peak {facts['peak'] / 2**20:,.0f} MiB"
    return text + (f"  first step {facts['first_s']:.2f} s" if "first_s" in facts else "")


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("training_step", __doc__)
    models = partial(choices, known=tuple(WORKLOADS))
    parser.add_argument("--models", type=models, default=["mlp", "cnn", "gpt"], help=f"any of {', '.join(WORKLOADS)}")
    precisions = partial(choices, known=PRECISIONS)
    help_text = f"any of {', '.join(PRECISIONS)}; bfloat16 is autocast"
    parser.add_argument("--precisions", type=precisions, default=["highest"], help=help_text)
    parser.add_argument("--repetitions", type=int, default=20)
    args = parser.parse_args(arguments)
    os.environ["POLYHAL_BUILD_AHEAD"] = "0"  # background builds would take cores from the measured programs
    devices = open_devices(args.devices)
    result: dict[str, Any] = {"benchmark": "training_step", **describe_machine(devices), "rows": []}
    for model in args.models:
        for precision in args.precisions:
            for device in devices:
                result["rows"].append(measure(WORKLOADS[model], device, precision, args.repetitions))
                write(args.json, result)  # after every row, so that an interrupted run keeps its results
    return 0
