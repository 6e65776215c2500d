"""Programs of whole models, captured, eager, and in PyTorch: time, peak memory, and time to the end of the first run."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from benchmarks.arguments import choices, make_parser, open_devices
from benchmarks.frameworks.pytorch_ways import COMPILED, GRAPHS, PEERS
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import TimingSummary, alternate
from polyhal import Device

Step = Callable[[], object]
"""Runs a program once and waits for it."""
_SAMPLE_SECONDS = 0.05
_STEPS_BEFORE_PEAK = 4
"""A captured step is recorded twice before it is only replayed."""
CAPTURED, EAGER = "captured", "eager"
OWN = (CAPTURED, EAGER)
Facts = dict[str, float]
"""Figures of a step in addition to its time: "peak" in bytes, "first_s" in seconds."""


class Workload(Protocol):
    """A program of a model on a batch."""

    @property
    def name(self) -> str: ...

    @property
    def what(self) -> str:
        """The model and its batch, for tables."""

    @property
    def items(self) -> int:
        """Tokens or images per run."""

    @property
    def tokens(self) -> bool:
        """True if items are tokens."""

    def polyhal_step(self, device: Device, precision: str, *, captured: bool) -> Step:
        """Prepare the program in Polyhal."""

    def torch_step(self, place: str, precision: str, way: str) -> Step:
        """Prepare the program on PyTorch's device `place`, in one of PyTorch's ways."""


def _prepare(workload: Workload, device: Device, precision: str, captured: bool) -> tuple[Step, Facts]:
    """Prepare and run a program of Polyhal, measuring its peak memory and the time to the end of its first run."""
    device.empty_cache()
    before = device.memory_stats().used
    begin = time.perf_counter()
    step = workload.polyhal_step(device, precision, captured=captured)
    step()
    first = time.perf_counter() - begin
    for _ in range(_STEPS_BEFORE_PEAK):
        step()
    device.pool.reset_peak()
    step()
    return step, {"peak": device.memory_stats().peak - before, "first_s": first}


def _prepare_torch(workload: Workload, place: str, precision: str, way: str) -> tuple[Step, Facts]:
    """Prepare and run a step of PyTorch, measuring its peak memory on CUDA."""
    import torch

    if place != "cuda":
        return workload.torch_step(place, precision, way), {}
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    step = workload.torch_step(place, precision, way)
    step()
    torch.cuda.reset_peak_memory_stats()
    step()
    # A CUDA graph owns its memory since the capture, so its peak cannot be measured here.
    return step, {"peak": torch.cuda.max_memory_allocated() - before} if way not in GRAPHS else {}


Prepared = Callable[[], tuple[Step, Facts]]


def peers(workload: Workload, devices: Sequence[Device], precision: str, ways: Sequence[str]) -> dict[str, Prepared]:
    """Return functions that prepare a step of PyTorch each, by its way; none if it is not installed."""
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed and not measured")
        return {}
    on_gpu = any(d.type.value == "gpu" for d in devices) and torch.cuda.is_available()
    place = "cuda" if on_gpu else "cpu"
    chosen = [way for way in ways if on_gpu or way not in GRAPHS]
    return {way: partial(_prepare_torch, workload, place, precision, way) for way in chosen}


def measure(
    workload: Workload, devices: Sequence[Device], precision: str, ways: Sequence[str], repetitions: int
) -> list[dict[str, Any]]:
    """Measure one step of all devices and of PyTorch in alternation and print the results. Returns a row per device."""
    prepare: dict[tuple[str, str], Prepared] = {}
    for device in devices:
        for how in OWN:
            prepare[device.name, how] = partial(_prepare, workload, device, precision, how == CAPTURED)
    prepare |= {("", way): peer for way, peer in peers(workload, devices, precision, ways).items()}
    steps, facts = {}, {}
    for who, prepared in prepare.items():
        steps[who], facts[who] = prepared()
    timings = alternate(steps, repetitions, min_seconds=_SAMPLE_SECONDS)
    figures = {
        who: {"ms": t.median * 1e3, "low_ms": t.low * 1e3, "high_ms": t.high * 1e3, **facts[who]}
        for who, t in timings.items()
    }
    for (device_name, how), t in timings.items():
        title = f"{device_name:<12} {workload.name:<9} {precision:<9} {how:<28}"
        print(f"{title} {_line(workload, t, facts[device_name, how])}", flush=True)
    steps.clear()
    gc.collect()
    for device in devices:
        device.empty_cache()
    row = {
        "model": workload.name,
        "what": workload.what,
        "precision": precision,
        "items": workload.items,
        "tokens": workload.tokens,
    }
    return [
        {**row, "device": d.name, "who": {how: f for (name, how), f in figures.items() if name in (d.name, "")}}
        for d in devices
    ]


def _line(workload: Workload, t: TimingSummary, facts: Facts) -> str:
    text = f"{t.text(1e3, 'ms')}  {workload.items / t.median:,.0f} per second"
    if "peak" in facts:
        text += f"  peak {facts['peak'] / 2**20:,.0f} MiB"
    return text + (f"  first step {facts['first_s']:.2f} s" if "first_s" in facts else "")


def run(
    benchmark: str,
    description: str | None,
    workloads: Mapping[str, Workload],
    models: Sequence[str],
    precisions: Sequence[str],
    arguments: Sequence[str],
) -> int:
    """Run a benchmark of whole models from the command line. Returns the exit code.

    `models` are the names that are measured without an option; the first of the `precisions` is the default one.
    """
    parser = make_parser(benchmark, description)
    known = partial(choices, known=tuple(workloads))
    parser.add_argument("--models", type=known, default=list(models), help=f"any of {', '.join(workloads)}")
    known = partial(choices, known=tuple(precisions))
    parser.add_argument(
        "--precisions", type=known, default=list(precisions[:1]), help=f"any of {', '.join(precisions)}"
    )
    help_text = "also measure programs that PyTorch's compiler has compiled, which takes it a minute per model"
    parser.add_argument("--compiled", action="store_true", help=help_text)
    parser.add_argument("--repetitions", type=int, default=20)
    args = parser.parse_args(arguments)
    os.environ["POLYHAL_BUILD_AHEAD"] = "0"  # background builds would take cores from the measured programs
    devices = open_devices(args.devices)
    result: dict[str, Any] = {"benchmark": benchmark, **describe_machine(devices), "rows": []}
    ways = [way for way in PEERS if args.compiled or way not in COMPILED]
    for model in args.models:
        for precision in args.precisions:
            result["rows"] += measure(workloads[model], devices, precision, ways, args.repetitions)
            write(args.json, result)  # after every model, so that an interrupted run keeps its results
    return 0
