"""Copying beside computing: a loop that is bound by its loader, by the device's own timestamps.

python -m benchmarks.overlap [--devices opencl:0,opencl:1] [--batches 24] [--size 16] [--json FILE]

Prints, for each device, how long copies to it ran, how long kernels ran, how much of the copies' time a kernel was running
beside them, and the time of the loop with batches read ahead and with batches read when they are asked for.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import describe, write
from benchmarks.measure import alternate
from polyhal import Device, Tensor
from polyhal.data import DataLoader, TensorDataset
from polyhal.hal.capabilities import DeviceType
from polyhal.hal.diagnostics.profiler import profile
from polyhal.hal.discovery.registry import registry
from polyhal.hal.protocol import TRANSFER, Feature

_WIDTH = 1024
_COLUMNS = {DeviceType.GPU: 4096}
"""A batch is multiplied by a matrix of so many columns, 64 elsewhere: for a time that is seen beside that of its copy."""
Span = tuple[int, int]
"""First and last nanosecond."""


def loop_of(device: Device, data: TensorDataset, rows: int, prefetch: int) -> Callable[[], None]:
    """One pass over the data, `rows` at a time, with a matrix product per batch."""
    weight = Tensor(np.ones((_WIDTH, _COLUMNS.get(device.type, 64)), np.float32), device=device)
    loader = DataLoader(data, rows, device=device, prefetch=prefetch)

    def loop() -> None:
        for (x,) in loader:
            (x @ weight).sum()
        device.synchronize()

    return loop


def spans(device: Device, loop: Callable[[], None]) -> tuple[list[Span], list[Span]]:
    """When copies and when kernels ran."""
    with profile(device) as found:
        loop()
    events = [e for e in found.events if e.device]
    copies = [(e.start, e.start + e.duration) for e in events if e.name == TRANSFER]
    return copies, [(e.start, e.start + e.duration) for e in events if e.name != TRANSFER]


def beside(copies: list[Span], kernels: list[Span]) -> int:
    """Nanoseconds in which a copy and a kernel ran at once. Kernels must not overlap one another."""
    return sum(max(0, min(b, d) - max(a, c)) for a, b in copies for c, d in kernels)


def measure(device: Device, batches: int, megabytes: int) -> dict[str, Any]:
    """One row of results in seconds, printed as well."""
    rows = max(1, megabytes * 2**20 // (4 * _WIDTH))
    data = TensorDataset(np.ones((batches * rows, _WIDTH), np.float32))
    ahead, direct = (loop_of(device, data, rows, prefetch) for prefetch in (2, 0))
    ahead()
    copies, kernels = spans(device, ahead)
    copied, computed = (sum(b - a for a, b in part) for part in (copies, kernels))
    both = beside(copies, kernels)
    print(f"\n{device.info.name} ({device.name}), {batches} batches of {megabytes} MiB")
    print(f"  copies {copied / 1e6:.1f} ms, kernels {computed / 1e6:.1f} ms, both at once {both / 1e6:.1f} ms")
    row: dict[str, Any] = {
        "device": device.name, "batches": batches, "megabytes": megabytes,
        "copies": copied / 1e9, "kernels": computed / 1e9, "both": both / 1e9, "loops": {},
    }  # fmt: skip
    for name, timing in alternate({"read ahead": ahead, "read when asked": direct}, 7, 1).items():
        print(f"  {name:<16} {timing.text(1e3, 'ms')}")
        row["loops"][name] = [timing.median, timing.low, timing.high]
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", default="", help="comma-separated names; all devices with streams by default")
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--size", type=int, default=16, help="MiB of a batch")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    names = args.devices.split(",") if args.devices else [c.name for c in registry().candidates()]
    devices = [d for d in map(Device, names) if d.features & Feature.STREAMS]
    rows = [measure(d, args.batches, args.size) for d in devices]
    write(args.json, {"benchmark": "overlap", **describe(devices), "rows": rows})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
