"""Overlap of copies with kernels, in a loop that is bound by its data loader.

Prints, from the device's own timestamps, how long copies ran, how long kernels ran, and how long both ran at once; and the
time of the loop with prefetched batches and with batches read on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.arguments import make_parser, open_devices
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import alternate
from polyhal import Device, Tensor
from polyhal.data import DataLoader, TensorDataset
from polyhal.hal.capabilities import DeviceType
from polyhal.hal.protocol import TRANSFER, Feature
from polyhal.profiler import profile

_WIDTH = 1024
_COLUMNS = {DeviceType.GPU: 4096}
"""Columns of the matrix that each batch is multiplied by, 64 on other devices: the product takes about as long as the copy."""
Span = tuple[int, int]
"""First and last nanosecond."""


def make_loop(device: Device, data: TensorDataset, rows: int, prefetch: int) -> Callable[[], None]:
    """Return one pass over the data in batches of `rows`, with a matrix product per batch."""
    weight = Tensor(np.ones((_WIDTH, _COLUMNS.get(device.type, 64)), np.float32), device=device)
    loader = DataLoader(data, rows, device=device, prefetch=prefetch)

    def loop() -> None:
        for (x,) in loader:
            (x @ weight).sum()
        device.synchronize()

    return loop


def device_spans(device: Device, loop: Callable[[], None]) -> tuple[list[Span], list[Span]]:
    """Return the spans of copies and the spans of kernels."""
    with profile(device) as result:
        loop()
    copies = [(x.begin, x.end) for x in result.launches if x.kernel == TRANSFER]
    return copies, [(x.begin, x.end) for x in result.launches if x.kernel != TRANSFER]


def overlap(copies: list[Span], kernels: list[Span]) -> int:
    """Return nanoseconds in which a copy and a kernel ran at once. Kernels must not overlap each other."""
    return sum(max(0, min(b, d) - max(a, c)) for a, b in copies for c, d in kernels)


def measure(device: Device, batches: int, megabytes: int) -> dict[str, Any]:
    """Measure one device and print the results. Returns a row with seconds."""
    rows = max(1, megabytes * 2**20 // (4 * _WIDTH))
    data = TensorDataset(np.ones((batches * rows, _WIDTH), np.float32))
    prefetched, on_demand = (make_loop(device, data, rows, prefetch) for prefetch in (2, 0))
    prefetched()
    copies, kernels = device_spans(device, prefetched)
    copy_ns, kernel_ns = (sum(b - a for a, b in spans) for spans in (copies, kernels))
    both_ns = overlap(copies, kernels)
    print(f"\n{device.info.name} ({device.name}), {batches} batches of {megabytes} MiB")
    print(f"  copies {copy_ns / 1e6:.1f} ms, kernels {kernel_ns / 1e6:.1f} ms, both at once {both_ns / 1e6:.1f} ms")
    row: dict[str, Any] = {
        "device": device.name,
        "batches": batches,
        "megabytes": megabytes,
        "copies": copy_ns / 1e9,
        "kernels": kernel_ns / 1e9,
        "both": both_ns / 1e9,
        "loops": {},
    }
    for name, timing in alternate({"prefetched": prefetched, "on demand": on_demand}, 7, 1).items():
        print(f"  {name:<16} {timing.text(1e3, 'ms')}", flush=True)
        row["loops"][name] = [timing.median, timing.low, timing.high]
    return row


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("overlap", __doc__)
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--size", type=int, default=16, help="MiB of a batch")
    args = parser.parse_args(arguments)
    devices = open_devices(args.devices, lambda device: bool(device.features & Feature.STREAMS))
    rows = [measure(d, args.batches, args.size) for d in devices]
    write(args.json, {"benchmark": "overlap", **describe_machine(devices), "rows": rows})
    return 0
