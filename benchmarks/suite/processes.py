"""Data-parallel steps of one process with several devices, and of several processes with a device each.

Each device has a full batch (weak scaling), and steps are as in `scaling`: captured, with gradient reductions that
overlap with the backward pass. Processes are started by `polyhal launch`, exchange gradients through MPI, and take the
devices in turn. A step on one device is timed before and after, because other processes cannot alternate with this one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.arguments import choices, make_parser
from benchmarks.result_files import describe_machine, write
from benchmarks.suite.scaling import measure, with_samples
from benchmarks.timing import TimingSummary
from benchmarks.training_workloads import GPTS, PRECISIONS, WORKLOADS, TrainingWorkload
from polyhal import Device
from polyhal.hal.errors import PolyhalError
from polyhal.hal.system.discovery.device_list import open_devices

_ROOT = Path(__file__).resolve().parents[2]


def measure_processes(
    workload: TrainingWorkload, devices: Sequence[Device], processes: int, precision: str, repetitions: int
) -> TimingSummary:
    """Time the step of a job of `processes`, which take the devices in turn. Raises PolyhalError if the job fails."""
    names = ",".join(d.name for d in devices)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "timing.json"
        program = ["-m", "benchmarks.steps_of_ranks", workload.name, workload.inputs[0], precision, repetitions, path]
        launch = [sys.executable, "-m", "polyhal", "launch", "-n", processes, "--devices", names, *program]
        # A device such as 1/2 of a processor is a number of cores, so the driver must report all cores.
        cores = {"POCL_MAX_PTHREAD_COUNT": str(os.cpu_count())} if "/" in names else {}
        done = subprocess.run(list(map(str, launch)), cwd=_ROOT, env={**os.environ, **cores}, check=False)
        if done.returncode:
            raise PolyhalError(f"the job of {processes} processes on {names} ended with status {done.returncode}")
        found = json.loads(path.read_text(encoding="utf-8"))
    assert found.pop("devices") == [devices[i % len(devices)].name for i in range(processes)]
    return TimingSummary(**found)


def row_of(
    workload: TrainingWorkload, devices: Sequence[Device], processes: int, precision: str, repetitions: int
) -> dict[str, Any]:
    """Measure a model in all ways, and print the results. Returns a row."""
    before = measure(workload, devices, sorted({1, len(devices)}), precision, repetitions)
    job = measure_processes(workload, devices, processes, precision, repetitions)
    after = measure(workload, devices, [1], precision, repetitions)
    timings = {"one device": before[1], "one device, afterwards": after[1], f"{processes} processes": job}
    if len(devices) > 1:
        timings[f"{len(devices)} devices, one process"] = before[len(devices)]
    row: dict[str, Any] = {
        "model": workload.name,
        "what": workload.what,
        "devices": [d.name for d in devices],
        "processes": processes,
        "precision": precision,
        "samples": workload.inputs[0],
        "who": {},
    }
    print(f"{workload.name}, {precision}, {workload.inputs[0]} samples each, on {', '.join(row['devices'])}")
    for who, t in timings.items():
        row["who"][who] = {"ms": t.median * 1e3, "low_ms": t.low * 1e3, "high_ms": t.high * 1e3}
        print(f"  {who:<24} {t.text(1e3, 'ms')}", flush=True)
    return row


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("processes", __doc__, devices="opencl:pocl/2")
    parser.add_argument("--processes", type=int, help="how many; default: one for each device, at least two")
    parser.add_argument("--models", type=partial(choices, known=GPTS), default=["gpt"], help=", ".join(GPTS))
    parser.add_argument("--precisions", type=partial(choices, known=PRECISIONS), default=["highest"])
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--samples", type=int, help="batch of each device; default: the model's")
    args = parser.parse_args(arguments)
    os.environ["POLYHAL_BUILD_AHEAD"] = "0"  # background builds would take cores from the measured programs
    devices = open_devices(args.devices)
    processes = max(2, len(devices)) if args.processes is None else args.processes
    if processes < 1:
        parser.error(f"--processes is {processes}; expected 1 or more")
    result: dict[str, Any] = {"benchmark": "processes", **describe_machine(devices), "rows": []}
    for model in args.models:
        for precision in args.precisions:
            workload = with_samples(WORKLOADS[model], args.samples)
            result["rows"].append(row_of(workload, devices, processes, precision, args.repetitions))
            write(args.json, result)  # after every row, so that an interrupted run keeps its results
    return 0
