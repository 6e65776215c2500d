"""How fast devices copy to each other, in one direction and in both: directly if they can, else through the host.

A single named device is opened a second time, so that copies between its two contexts are measured. Every result is
checked.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.arguments import make_parser, open_devices
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import TimingSummary, summarize
from polyhal import Device, Tensor, full
from polyhal.hal.core.memory.host_bytes import byte_view
from polyhal.hal.core.memory.peer_copies import copy_from_peer, has_peer_copy
from polyhal.hal.core.plugins import probing
from polyhal.hal.system.discovery.registry import registry

_REPETITIONS = 7


def twin(device: Device) -> Device:
    """Open the device a second time."""
    create = probing.resolve(registry().backends[device.info.backend].create)
    return Device.opened(f"{device.name} again", create(device.info.selector))


def timed(devices: Sequence[Device], run: Callable[[], object]) -> TimingSummary:
    """Return seconds of `run` until all devices are done."""
    samples = []
    for _ in range(_REPETITIONS + 1):
        for d in devices:
            d.synchronize()
        begin = time.perf_counter()
        run()
        for d in devices:
            d.synchronize()
        samples.append(time.perf_counter() - begin)
    return summarize(samples[1:])


def vector(device: Device, nbytes: int, value: float) -> Tensor:
    """Return float32 numbers in memory that is allocated now: devices that have peers may make it elsewhere than before."""
    device.empty_cache()
    return full((nbytes // 4,), value, device=device)


def through_host(source: Tensor, target: Tensor) -> None:
    """Copy through the host, as devices without access to each other do."""
    target.device.backend.copy_to_device(byte_view(source.numpy()), target.ref.handle, 0)


def measure_pair(first: Device, second: Device, nbytes: int, *, direct: bool) -> dict[str, Any]:
    """Measure and check copies of `nbytes` from one device to the other, and in both directions at once. Returns a row."""
    there, back = (vector(d, nbytes, v) for d, v in ((first, 1.0), (second, 2.0)))
    received, returned = vector(second, nbytes, 0.0), vector(first, nbytes, 0.0)
    streams = [(first.stream(), second.stream()) for _ in range(2)]

    def copy(source: Tensor, target: Tensor) -> None:
        if direct:
            copy_from_peer(source.device, source.ref, target.device, target.ref)
        else:
            through_host(source, target)

    def both() -> None:
        for (a, b), (source, target) in zip(streams, ((there, received), (back, returned)), strict=True):
            with a.selected(), b.selected():
                copy(source, target)

    one = timed([first, second], lambda: copy(there, received)).median
    assert np.all(received.numpy() == 1.0), f"wrong bytes arrived on {second}"
    two = timed([first, second], both).median if direct else None
    assert two is None or np.all(returned.numpy() == 2.0), f"wrong bytes arrived on {first}"
    way = "direct" if direct else "host"
    rates = f"{nbytes / one / 1e9:8.2f} GB/s" + (f", both ways {2 * nbytes / two / 1e9:8.2f} GB/s" if two else "")
    print(f"  {first.name} -> {second.name}, {way:<6} {nbytes / 2**20:7.1f} MiB  {rates}", flush=True)
    return {
        "from": first.name,
        "to": second.name,
        "way": way,
        "bytes": nbytes,
        "seconds": one,
        "both_seconds": two,
    }


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("links", __doc__)
    parser.add_argument("--mebibytes", default="1,16,256", help="sizes of the copies")
    args = parser.parse_args(arguments)
    devices = open_devices(args.devices)
    if len(devices) == 1:
        devices = [*devices, twin(devices[0])]
    rows = []
    for size in (int(float(n) * 2**20) for n in args.mebibytes.split(",")):
        for first, second in itertools.permutations(devices, 2):
            if has_peer_copy(first, second) and has_peer_copy(second, first):
                rows.append(measure_pair(first, second, size, direct=True))
            rows.append(measure_pair(first, second, size, direct=False))
    write(args.json, {"benchmark": "links", **describe_machine(devices), "rows": rows})
    return 0
