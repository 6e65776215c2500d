"""Overlap of the host's work with the device's when results are read asynchronously, in a loop that uses them.

Each turn of the loop runs matrix products on the device and then reads the result; the host computes a checksum of it,
which takes about as long. With `numpy` the two take turns. With `numpy_async` the host works on the last result while
the device computes the next one.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.arguments import make_parser, open_devices
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import alternate
from polyhal import Device, Tensor
from polyhal.hal.capabilities import DeviceType
from polyhal.hal.protocol import Feature

_WIDTH = {DeviceType.GPU: 4096}
"""Rows and columns of the matrices, 512 on other devices."""
_PRODUCTS = 8


class Loop:
    """A device's work and the host's, of about equal duration."""

    def __init__(self, device: Device, turns: int) -> None:
        width = _WIDTH.get(device.type, 512)
        self._x = Tensor(np.full((width, width), 1 / width, np.float32), device=device)
        self._turns = turns
        self._checksums = 1
        self.compute()
        self._checksums = max(1, round(self.seconds(self.compute) / self.seconds(lambda: self.use(self._x.numpy()))))

    @staticmethod
    def seconds(function: Callable[[], object]) -> float:
        """Return the shortest of three runs."""
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            function()
            times.append(time.perf_counter() - begin)
        return min(times)

    def compute(self) -> Tensor:
        """Run the device's work without the host's."""
        y = self.enqueue()
        y.device.synchronize()
        return y

    def enqueue(self) -> Tensor:
        """Start the device's work."""
        y = self._x
        for _ in range(_PRODUCTS):
            y = y @ self._x
        return y

    def use(self, array: np.ndarray) -> None:
        """Run the host's work, which needs no interpreter lock."""
        for _ in range(self._checksums):
            zlib.crc32(array.data)

    def device_only(self) -> None:
        for _ in range(self._turns):
            y = self.enqueue()
        y.device.synchronize()

    def host_only(self) -> None:
        array = np.zeros(self._x.shape, np.float32)
        for _ in range(self._turns):
            self.use(array)

    def blocking(self) -> None:
        for _ in range(self._turns):
            self.use(self.enqueue().numpy())

    def asynchronous(self) -> None:
        last = self.enqueue().numpy_async()
        for _ in range(self._turns - 1):
            following = self.enqueue().numpy_async()
            self.use(last.result())
            last = following
        self.use(last.result())


def measure(device: Device, turns: int) -> dict[str, Any]:
    """Measure one device and print the results. Returns a row with seconds per turn."""
    loop = Loop(device, turns)
    print(f"\n{device.info.name} ({device.name}), per turn of {turns}")
    row: dict[str, Any] = {"device": device.name, "turns": turns, "loops": {}}
    competitors = {
        "device alone": loop.device_only,
        "host alone": loop.host_only,
        "numpy": loop.blocking,
        "numpy_async": loop.asynchronous,
    }
    for name, timing in alternate(competitors, 7, 1).items():
        times = [t / turns for t in (timing.median, timing.low, timing.high)]
        print(f"  {name:<16} {times[0] * 1e3:.2f} ms [{times[1] * 1e3:.2f}, {times[2] * 1e3:.2f}]", flush=True)
        row["loops"][name] = times
    return row


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("read_back", __doc__)
    parser.add_argument("--turns", type=int, default=20)
    args = parser.parse_args(arguments)
    devices = open_devices(args.devices, lambda device: bool(device.features & Feature.ASYNC_READ))
    rows = [measure(d, args.turns) for d in devices]
    write(args.json, {"benchmark": "read_back", **describe_machine(devices), "rows": rows})
    return 0
