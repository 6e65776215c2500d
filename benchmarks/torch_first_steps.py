"""The first steps of a PyTorch program, in a separate process.

python -m benchmarks.torch_first_steps SIZE MODEL WHO DEVICE PLACE PRECISION prints as JSON the seconds of each step,
and those of the processor in this process, which other work on the machine does not lengthen. The first step begins with
the model in host memory; imports and the opening of the device are not counted. The benchmark `torch_steps` runs it.
"""

from __future__ import annotations

import json
import sys
import time

from benchmarks.torch_step_workloads import WORKLOADS_BY_SIZE, prepare
from polyhal import Device

STEPS = 4
"""The fourth step is the first that is only replayed."""


def main(size: str, model: str, who: str, device: str, place: str, precision: str) -> None:
    opened = Device(device)
    workload = next(w for w in WORKLOADS_BY_SIZE[size] if w.name == model)
    seconds, processor = [], []
    begin, begin_processor = time.perf_counter(), time.process_time()
    step = prepare(workload, who, opened, place, precision)
    for _ in range(STEPS):
        step()
        seconds.append(time.perf_counter() - begin)
        processor.append(time.process_time() - begin_processor)
        begin, begin_processor = time.perf_counter(), time.process_time()
    print(json.dumps({"seconds": seconds, "processor": processor}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
