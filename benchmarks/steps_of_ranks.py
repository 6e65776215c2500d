"""Program of each rank of the benchmark `processes`: data-parallel steps on its device, timed in
lockstep with the other ranks."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import polyhal
from benchmarks.suite.scaling import parallel_step, with_samples
from benchmarks.timing import SETTLE_SECONDS, TimingSummary, calls_per_sample, summarize
from benchmarks.training_workloads import WORKLOADS
from polyhal import Device, distributed
from polyhal.training import Ranks

_SAMPLE_SECONDS = 0.1


def time_together(step: Callable[[], object], ranks: Ranks, repetitions: int) -> TimingSummary:
    """Return seconds per step of the slowest rank. All ranks take the same number of steps."""
    number = ranks.agree(calls_per_sample(step, _SAMPLE_SECONDS))
    samples = []
    for _ in range(repetitions):
        ranks.group.barrier()
        time.sleep(SETTLE_SECONDS)
        begin = time.perf_counter()
        for _ in range(number):
            step()
        samples.append(ranks.largest((time.perf_counter() - begin) / number))
    return summarize(samples)


def main(model: str, samples: str, precision: str, repetitions: str, path: str) -> None:
    """Time steps, and let rank 0 write the result to a file."""
    group = distributed.init()
    ranks, device = Ranks(group), Device.default()
    polyhal.set_float32_matmul_precision("high" if precision == "high" else "highest")
    step = parallel_step(with_samples(WORKLOADS[model], int(samples)), [device], precision, group)
    timing = time_together(step, ranks, int(repetitions))
    devices = ranks.collect(device.name)
    if ranks.first:
        Path(path).write_text(json.dumps({"devices": devices, **asdict(timing)}), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
