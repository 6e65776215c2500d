"""Training on one device, and in a pair with one that is as fast or several times slower, on the same batch.

The second device is throttled, so that the ratio of speeds is known. The rows of a batch are divided evenly, and in
proportion to the speeds of the devices in separate steps; their sum is the upper limit for a pair.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import polyhal
from benchmarks.arguments import choices, make_parser
from benchmarks.result_files import describe_machine, write
from benchmarks.throttled import throttled
from benchmarks.timing import alternate, per_call
from benchmarks.training_workloads import GPTS, WORKLOADS, TrainingWorkload, captured_step
from polyhal import Device
from polyhal.hal.system.discovery.device_list import open_devices
from polyhal.models import GPT
from polyhal.parallel import DataParallel

_SPEED_RUNS = 4
"""Steps from which the speed of a device is measured; rows are divided by speed."""
_SAMPLE_SECONDS = 0.1


def training_step(
    workload: TrainingWorkload, devices: Sequence[Device], shares: Sequence[float] | None = None
) -> Callable[[], object]:
    """Prepare a captured training step on one batch, whose rows are divided among the devices by `shares`."""
    assert workload.config is not None
    polyhal.manual_seed(0)
    model = GPT(workload.config, device=devices[0])
    parallel = DataParallel(model, list(devices), shares=shares)
    batch = parallel.shard(*workload.batch())

    def forward_backward() -> polyhal.Tensor:
        loss: polyhal.Tensor = parallel.map(GPT.loss, *batch)
        loss.backward()
        return loss

    return captured_step(parallel.parameters(), forward_backward, devices)


def measure(workload: TrainingWorkload, pair: Sequence[Device], slower: int, repetitions: int) -> dict[str, Any]:
    """Measure a model on each device and on the pair, and print the results. Returns a row."""
    first, second = pair
    steps = {"first": training_step(workload, [first]), "second": training_step(workload, [second])}
    speeds = [1 / per_call(step, 1, _SPEED_RUNS).median for step in steps.values()]
    steps["pair, even"] = training_step(workload, pair)
    if slower > 1:
        steps["pair, by speed"] = training_step(workload, pair, speeds)
    timings = alternate(steps, repetitions, min_seconds=_SAMPLE_SECONDS)
    alone = timings["first"].median
    row: dict[str, Any] = {
        "model": workload.name,
        "what": workload.what,
        "batch": workload.inputs[0],
        "devices": [d.name for d in pair],
        "slower": slower,
        "shares": [s / sum(speeds) for s in speeds],
        "most": 1 + alone / timings["second"].median,
        "who": {},
    }
    print(
        f"{workload.name}, {row['batch']} rows, on {first.name} and {second.name}, at most {row['most']:.2f} times the first"
    )
    for who, t in timings.items():
        row["who"][who] = {"ms": t.median * 1e3, "low_ms": t.low * 1e3, "high_ms": t.high * 1e3}
        print(f"  {who:<16} {t.text(1e3, 'ms')}  {alone / t.median:.2f} times the first", flush=True)
    return row


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("pairs", __doc__, devices="opencl:pocl/2")
    parser.add_argument("--models", type=partial(choices, known=GPTS), default=["gpt"], help=", ".join(GPTS))
    factors = partial(choices, known=("1", "2", "3", "4"))
    parser.add_argument(
        "--slower", type=factors, default=["1", "3"], help="how many times slower the second device is made"
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[16, 64], help="rows of a batch")
    parser.add_argument("--repetitions", type=int, default=15)
    args = parser.parse_args(arguments)
    os.environ["POLYHAL_BUILD_AHEAD"] = "0"  # background builds would take cores from the measured programs
    devices = open_devices(args.devices)
    if len(devices) != 2:
        print(f"skipped: {args.devices} names {len(devices)} devices; expected two")
        return 0
    first, second = devices
    result: dict[str, Any] = {"benchmark": "pairs", **describe_machine((first, second)), "rows": []}
    for model in args.models:
        for slower, rows in itertools.product(map(int, args.slower), args.rows):
            pair = (first, throttled(second.name, slower) if slower > 1 else second)
            workload = WORKLOADS[model]
            workload = replace(workload, inputs=(rows, *workload.inputs[1:]))
            result["rows"].append(measure(workload, pair, slower, args.repetitions))
            write(args.json, result)  # after every row, so that an interrupted run keeps its results
    return 0
