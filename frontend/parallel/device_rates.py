"""Rates of devices, from a short measurement: times of ops are predicted from them."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from polyhal import functions as ops
from polyhal.creation import ones
from polyhal.hal.device import Device
from polyhal.hal.protocol import SupportsProfiling
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor

_LONG_ENOUGH = 1e-3
"""Minimum seconds of a kernel that shows the device's throughput; shorter ones are dominated by launches."""
_PATIENCE = 0.05
"""Maximum seconds of host time after which no larger size is tried."""
_SHARE = 0.25
"""Fraction of a device's free memory that measurements may use."""
_LINK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """Throughput, latencies and memory of one device."""

    flops: float
    """Additions and multiplications per second in matrix products."""
    bandwidth: float
    """Bytes per second that elementwise kernels read and write."""
    link: float
    """Bytes per second between device and host."""
    launch: float
    """Seconds of an empty kernel."""
    memory: int
    """Bytes that can be allocated."""
    latency: float = 0.0
    """Seconds of an empty copy between device and host."""

    def seconds(self, flops: int, nbytes: int) -> float:
        """Return the time of one kernel by the roofline model."""
        return self.launch + max(flops / self.flops, nbytes / self.bandwidth)


def device_rates(device: Device) -> DeviceRates:
    """Measure a device once per process, in a fraction of a second, with its own clock if it has one.

    Devices of one kind share the result: otherwise disturbances of a measurement would make equal devices unequal.
    """
    info = device.info
    kind = info.backend, info.name, info.driver, info.memory
    found = _measured().get(kind)
    if found is None:
        with no_grad():
            found = _measured()[kind] = _measure(device)
        device.empty_cache()
    stats = device.memory_stats()
    return replace(found, memory=device.pool.available + stats.reserved - stats.used)


@functools.cache
def _measured() -> dict[tuple[str, str, str, int], DeviceRates]:
    """Return the cache of results, by kind of device."""
    return {}


def _measure(device: Device) -> DeviceRates:
    def product(n: int) -> Callable[[], Tensor]:
        x = ones((n, n), device=device)
        return lambda: x @ x

    def addition(n: int) -> Callable[[], Tensor]:
        x = ones((n, n), device=device)
        return lambda: ops.add(x, 1.0)

    launch = _kernel_seconds(device, addition(1))
    describe: Any = getattr(device.backend, "describe", None)
    facts = describe() if callable(describe) else {}
    if "link_bandwidth" in facts:
        # A simulated device reports its rates: its clock differs from the host's, on which the limits of a measurement depend.
        link, latency = facts["link_bandwidth"], facts["link_latency_ns"] * 1e-9
        return DeviceRates(facts["flops_per_s"], facts["bandwidth"], link, launch, 0, latency)
    side, seconds = _largest(device, product)
    width, duration = _largest(device, addition)
    latency = _copy_seconds(device, 1)
    link = _LINK_BYTES / max(_copy_seconds(device, _LINK_BYTES // 4) - latency, 1e-9)
    return DeviceRates(2 * side**3 / seconds, 8 * width**2 / duration, link, launch, 0, latency)


def _largest(device: Device, work: Callable[[int], Callable[[], Tensor]]) -> tuple[int, float]:
    """Return the size for which one kernel takes long enough to measure, and its time."""
    side = 128
    while True:
        run = work(side)
        begin = time.perf_counter()
        seconds = _kernel_seconds(device, run)
        # The next size: two matrices, twice as large in both directions, within a fraction of the free memory.
        fits = 2 * 4 * (2 * side) ** 2 <= device.pool.available * _SHARE
        if seconds >= _LONG_ENOUGH or time.perf_counter() - begin >= _PATIENCE or not fits:
            return side, seconds
        side *= 2


def _kernel_seconds(device: Device, run: Callable[[], Tensor]) -> float:
    """Return the time of the fastest of several runs, after one that compiles the kernel."""
    run()
    device.synchronize()
    times = []
    for _ in range(5):
        if isinstance(device.backend, SupportsProfiling):
            device.backend.start_profiling()
            run()
            times.append(sum(end - start for _, start, end in device.backend.stop_profiling()) * 1e-9)
            continue
        begin = time.perf_counter()
        run()
        device.synchronize()
        times.append(time.perf_counter() - begin)
    return max(min(times), 1e-9)


def _copy_seconds(device: Device, elements: int) -> float:
    """Return the time of the fastest copy in one direction, from several round trips."""
    x = ones((elements,), device=device)
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        device.upload(x.numpy(), x.dtype)
        device.synchronize()
        times.append(time.perf_counter() - begin)
    return min(times) / 2
