"""Overhead of `polyhal.profile`: a training step with and without a profile, eager and captured.

Samples alternate, and the beginning and the end of a profile are not part of them. Exits with code 1 if the ratio of the
medians exceeds the limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

import polyhal
from benchmarks.arguments import make_parser, open_devices
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import TimingSummary, summarize
from polyhal import Device, jit, manual_seed, nn, optim

LIMIT = 1.10
"""Largest ratio of a step in a profile to the step without one."""
_STEPS = 20
"""Steps of a sample."""
_WIDTH, _BATCH = 256, 128


def training_step(device: Device) -> Callable[[], polyhal.Tensor]:
    """Return a training step of a perceptron whose kernels take tens of microseconds on a processor."""
    manual_seed(0)
    layers = [nn.Linear(_WIDTH, _WIDTH), nn.GELU(), nn.Linear(_WIDTH, _WIDTH), nn.GELU(), nn.Linear(_WIDTH, 10)]
    model = nn.Sequential(*layers).to(device)
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    rng = np.random.default_rng(0)
    x = polyhal.tensor(rng.standard_normal((_BATCH, _WIDTH)).astype(np.float32), device=device)
    y = polyhal.tensor(rng.integers(0, 10, _BATCH), device=device)

    def step() -> polyhal.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def samples(device: Device, step: Callable[[], object], repetitions: int) -> dict[str, TimingSummary]:
    """Return seconds per step, without and with a profile, in alternation."""
    found: dict[str, list[float]] = {"without": [], "with": []}
    for _ in range(repetitions):
        for name, times in found.items():
            with polyhal.profile(device) if name == "with" else nullcontext():
                begin = time.perf_counter()
                for _ in range(_STEPS):
                    step()
                device.synchronize()
                times.append((time.perf_counter() - begin) / _STEPS)
    return {name: summarize(times) for name, times in found.items()}


def measure(device: Device, repetitions: int) -> list[dict[str, Any]]:
    """Measure both ways of a device, and print the results."""
    rows = []
    print(f"{device.name}: {device.info.name}, {device.info.driver}")
    eager = training_step(device)
    for how, step in (("eager", eager), ("captured", jit(training_step(device)))):
        for _ in range(4):
            step()
        timings = samples(device, step, repetitions)
        ratio = timings["with"].median / timings["without"].median
        lines = ", ".join(f"{name} {t.text(1e3, 'ms')}" for name, t in timings.items())
        print(f"  {how:<9} {lines}  ratio {ratio:.3f}", flush=True)
        row = {"device": device.name, "how": how, "ratio": ratio}
        rows.append(row | {name: {"ms": t.median * 1e3} for name, t in timings.items()})
    return rows


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("profiler", __doc__)
    parser.add_argument("--repetitions", type=int, default=20, help="samples of each kind")
    args = parser.parse_args(arguments)
    devices = open_devices(args.devices)
    rows = [row for device in devices for row in measure(device, args.repetitions)]
    write(args.json, {"benchmark": "profiler", **describe_machine(devices), "rows": rows})
    return 0 if all(row["ratio"] <= LIMIT for row in rows) else 1
