"""Data-parallel training steps on 1, 2, 4 ... devices, and their forecasts.

Each device has a full batch, for any number of devices (weak scaling). Steps are as in `training_step`: captured,
with AdamW and gradient clipping. Forecasts come from one of two sources: from the same step measured on the first device and
on the link between two of them, or, with `--profile`, only from a simulated device and its link.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import polyhal
from benchmarks.arguments import choices, make_parser
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import TimingSummary, alternate
from benchmarks.training_workloads import GPTS, PRECISIONS, WORKLOADS, TrainingWorkload, autocasting, captured_step
from polyhal import Device
from polyhal.forecast.cluster import Cluster, parse_cluster
from polyhal.forecast.forecaster import Forecaster
from polyhal.forecast.recipes import gpt_recipe
from polyhal.forecast.strategy import Strategy
from polyhal.hal.collectives.process_group import ProcessGroup
from polyhal.hal.system.discovery.device_list import open_devices
from polyhal.models import GPT
from polyhal.parallel import DataParallel

_SAMPLE_SECONDS = 0.1


def parallel_step(
    workload: TrainingWorkload, devices: Sequence[Device], precision: str, processes: ProcessGroup | None = None
) -> Callable[[], object]:
    """Prepare a captured training step, each device, of each of the processes, with a batch of the workload's size."""
    assert workload.config is not None
    polyhal.manual_seed(0)
    x, y = workload.batch()
    model = GPT(workload.config, device=devices[0])
    together = len(devices) > 1 or processes is not None
    many = DataParallel(model, list(devices), processes=processes) if together else None
    batch: Any
    if many is None:
        batch = [polyhal.tensor(a, device=devices[0]) for a in (x, y)]
    else:
        batch = many.shard(*([row for _ in devices for row in a] for a in (x, y)))

    def forward_backward() -> polyhal.Tensor:
        with autocasting(precision):
            loss: polyhal.Tensor = model.loss(*batch) if many is None else many.map(GPT.loss, *batch)
        loss.backward()
        return loss

    return captured_step(model.parameters(), forward_backward, devices)


def with_samples(workload: TrainingWorkload, samples: int | None) -> TrainingWorkload:
    """Return the workload with another batch."""
    return workload if samples is None else replace(workload, inputs=(samples, *workload.inputs[1:]))


def forecasts(workload: TrainingWorkload, cluster: Cluster, counts: Sequence[int], precision: str) -> list[float]:
    """Return seconds of a step for each number of devices."""
    assert workload.config is not None
    dtype = "bfloat16" if precision == "bfloat16" else "float32"
    forecaster = Forecaster(gpt_recipe(workload.name, workload.config), cluster, dtype)
    samples = workload.inputs[0]
    return [
        forecaster.predict(
            Strategy(data=n, micro_batch=samples, shard="none" if n == 1 else "optimizer"), cluster.of(n)
        ).seconds
        for n in counts
    ]


def measure(
    workload: TrainingWorkload, devices: Sequence[Device], counts: Sequence[int], precision: str, repetitions: int
) -> dict[int, TimingSummary]:
    """Time the step on the first 1, 2, 4 ... devices, in alternation."""
    polyhal.set_float32_matmul_precision("high" if precision == "high" else "highest")
    steps = {str(n): parallel_step(workload, devices[:n], precision) for n in counts}
    timings = alternate(steps, repetitions, min_seconds=_SAMPLE_SECONDS)
    steps.clear()
    gc.collect()
    return {int(name): timing for name, timing in timings.items()}


def row_of(
    workload: TrainingWorkload,
    devices: Sequence[Device],
    precision: str,
    timing: TimingSummary,
    alone: float,
    forecast: float,
) -> dict[str, Any]:
    """Print and return a measurement with its forecast. `alone` are the seconds of one device."""
    count = len(devices)
    row = {
        "model": workload.name,
        "what": workload.what,
        "devices": [d.name for d in devices],
        "precision": precision,
        "samples": workload.inputs[0],
        "ms": timing.median * 1e3,
        "low_ms": timing.low * 1e3,
        "high_ms": timing.high * 1e3,
        "speedup": count * alone / timing.median,
        "forecast_ms": forecast * 1e3,
    }
    print(
        f"{count} x {devices[0].name:<14} {workload.name:<8} {precision:<9} {timing.text(1e3, 'ms')}  "
        f"{row['speedup']:.2f} times one device   forecast {forecast * 1e3:9.2f} ms   {forecast / timing.median:.2f}",
        flush=True,
    )
    return row


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("scaling", __doc__, devices="opencl:pocl/2")
    parser.add_argument("--models", type=partial(choices, known=GPTS), default=["gpt"], help=", ".join(GPTS))
    parser.add_argument("--precisions", type=partial(choices, known=PRECISIONS), default=["highest"])
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--samples", type=int, help="batch of each device; default: the model's")
    parser.add_argument("--profile", help="forecast from this simulated device; default: from the first device")
    parser.add_argument(
        "--link", default="", help="between devices, as for polyhal plan; default: the profile's, or measured"
    )
    args = parser.parse_args(arguments)
    os.environ["POLYHAL_BUILD_AHEAD"] = "0"  # background builds would take cores from the measured programs
    devices = open_devices(args.devices)
    counts = [n for n in (1, 2, 4, 8, 16) if n <= len(devices)]
    cluster = parse_cluster(f"1x{len(devices)}x{args.profile or devices[0].name}", args.link)
    result: dict[str, Any] = {
        "benchmark": "scaling",
        **describe_machine(devices),
        "forecast_from": cluster.device,
        "link": str(cluster.inside),
        "rows": [],
    }
    for model in args.models:
        for precision in args.precisions:
            workload = with_samples(WORKLOADS[model], args.samples)
            expected = forecasts(workload, cluster, counts, precision)
            timings = measure(workload, devices, counts, precision, args.repetitions)
            for n, forecast in zip(counts, expected, strict=True):
                result["rows"].append(row_of(workload, devices[:n], precision, timings[n], timings[1].median, forecast))
                write(args.json, result)  # after every row, so that an interrupted run keeps its results
    return 0
