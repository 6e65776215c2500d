"""One model on several devices, in pipeline stages and with divided layers, compared with one device.

All train on the same batch (strong scaling). Steps are as in `training_step`: captured, with AdamW and gradient
clipping. The stages are those that `parallel.partition` proposes; the page of results has its predicted and measured
times.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import polyhal
from benchmarks.arguments import choices, make_parser
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import TimingSummary, alternate
from benchmarks.training_workloads import GPTS, PRECISIONS, WORKLOADS, TrainingWorkload, autocasting, captured_step
from polyhal import Device, parallel
from polyhal.hal.system.discovery.device_list import open_devices
from polyhal.models import GPT
from polyhal.nn import functional as F

WAYS = ("alone", "pipeline", "tensor")
_SAMPLE_SECONDS = 0.1


def loss_of(logits: polyhal.Tensor, targets: polyhal.Tensor) -> polyhal.Tensor:
    """Return the mean cross entropy of all tokens."""
    return F.cross_entropy(logits.reshape((-1, logits.shape[-1])), targets.reshape((-1,)))


def training_step(
    workload: TrainingWorkload, devices: Sequence[Device], way: str, micro_batches: int, precision: str
) -> tuple[Callable[[], object], float]:
    """Prepare a captured step. Returns it, and the predicted milliseconds of a pipeline, else 0."""
    assert workload.config is not None
    polyhal.manual_seed(0)
    x, y = (polyhal.tensor(a, device="numpy") for a in workload.batch())
    model = GPT(workload.config, device=devices[0] if way == "alone" else "numpy")
    predicted = 0.0
    pipeline: parallel.Pipeline | None = None
    if way == "pipeline":
        plan = parallel.partition(model, x, devices, micro_batches, targets=y, loss_function=loss_of)
        print(plan, flush=True)
        pipeline, predicted = plan.pipeline(), plan.seconds * 1e3
    elif way == "tensor":
        parallel.tensor_parallel(model, devices)
    x, y = x.to(devices[0]), y.to(pipeline.devices[-1] if pipeline else devices[0])

    def forward_backward() -> polyhal.Tensor:
        with autocasting(precision):
            if pipeline:
                return pipeline.forward_backward(x, y, loss_of)
            loss = loss_of(model(x), y)
        loss.backward()
        return loss

    return captured_step(model.parameters(), forward_backward, devices), predicted


def measure(
    workload: TrainingWorkload,
    devices: Sequence[Device],
    ways: Sequence[str],
    micro_batches: int,
    precision: str,
    repetitions: int,
) -> dict[str, tuple[TimingSummary, float]]:
    """Time all ways in alternation."""
    polyhal.set_float32_matmul_precision("high" if precision == "high" else "highest")
    prepared = {way: training_step(workload, devices, way, micro_batches, precision) for way in ways}
    timings = alternate({way: step for way, (step, _) in prepared.items()}, repetitions, min_seconds=_SAMPLE_SECONDS)
    found = {way: (timings[way], predicted) for way, (_, predicted) in prepared.items()}
    prepared.clear()
    gc.collect()
    return found


def row_of(
    workload: TrainingWorkload,
    devices: Sequence[Device],
    way: str,
    precision: str,
    timing: TimingSummary,
    alone: float,
    predicted: float,
) -> dict[str, Any]:
    """Print and return a measurement. `alone` are the seconds of one device."""
    used = devices[:1] if way == "alone" else devices
    row = {
        "model": workload.name,
        "what": workload.what,
        "way": way,
        "devices": [d.name for d in used],
        "precision": precision,
        "ms": timing.median * 1e3,
        "low_ms": timing.low * 1e3,
        "high_ms": timing.high * 1e3,
        "speedup": alone / timing.median,
        "predicted_ms": predicted,
    }
    print(
        f"{way:<8} {len(used)} x {used[0].name:<14} {workload.name:<8} {precision:<9} {timing.text(1e3, 'ms')}  "
        f"{row['speedup']:.2f} times one device" + (f"   predicted {predicted:.2f} ms" if predicted else ""),
        flush=True,
    )
    return row


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("model_parallel", __doc__, devices="opencl:pocl/2")
    parser.add_argument("--models", type=partial(choices, known=GPTS), default=["gpt"], help=", ".join(GPTS))
    parser.add_argument("--precisions", type=partial(choices, known=PRECISIONS), default=["highest"])
    parser.add_argument("--ways", type=partial(choices, known=WAYS), default=list(WAYS), help=", ".join(WAYS))
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--repetitions", type=int, default=15)
    args = parser.parse_args(arguments)
    os.environ["POLYHAL_BUILD_AHEAD"] = "0"  # background builds would take cores from the measured programs
    devices = open_devices(args.devices)
    ways = ["alone", *(w for w in args.ways if w != "alone")]
    result: dict[str, Any] = {"benchmark": "model_parallel", **describe_machine(devices), "rows": []}
    for model in args.models:
        for precision in args.precisions:
            workload = WORKLOADS[model]
            found = measure(workload, devices, ways, args.micro_batches, precision, args.repetitions)
            for way, (timing, predicted) in found.items():
                alone = found["alone"][0].median
                result["rows"].append(row_of(workload, devices, way, precision, timing, alone, predicted))
                write(args.json, result)  # after every row, so that an interrupted run keeps its results
    return 0
