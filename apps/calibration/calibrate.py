"""Calibration of a device: runs all measurements, and fits a profile of the simulator to them."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from polyhal import Device, ones
from polyhal.calibration.driver import driver_times
from polyhal.calibration.link import link_times
from polyhal.calibration.micro_benchmarks import MicroBenchmarks
from polyhal.calibration.peak import peak_rates
from polyhal.calibration.stopwatch import Step, Stopwatch, captured
from polyhal.devices import MeasuredCall, MeasuredDevice, MeasuredSample, Measurements
from polyhal.hal import dtypes
from polyhal.hal.ops import FUNCTIONS
from polyhal.profiler import step_calls

_DTYPES = (dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.float64)
_LONG = 3e-4
"""Minimum seconds of a product whose rate is the device's throughput."""
_LARGEST = 8192
_ROUNDS = 3
_PARTS = 32
"""Maximum fraction of the device's memory for an operand, as a divisor."""


def measure(
    device: Device,
    progress: Callable[[str], None] = lambda text: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Measurements:
    """Run the micro-benchmarks on a device. `progress` receives the name of each; `clock` is passed to `Stopwatch`."""
    begin = time.perf_counter()
    stopwatch = Stopwatch(device, clock)
    progress("the driver")
    driver, link = driver_times(stopwatch), link_times(stopwatch)
    peak = peak_rates(stopwatch)
    supported = tuple(d for d in _DTYPES if d in device.backend.capabilities.compute)
    samples = _samples(stopwatch, supported, progress)
    today = datetime.date.today().isoformat()
    return Measurements(_facts(device), today, driver, link, peak, samples, time.perf_counter() - begin)


def profile_text(measured: Measurements) -> str:
    """Return the text of a card, which `Device("sim:FILE.toml")` reads."""
    simulator: Any = Device("sim").backend
    text: str = simulator.fitted_profile(measured)
    return text


def _samples(
    stopwatch: Stopwatch, supported: tuple[dtypes.DType, ...], progress: Callable[[str], None]
) -> tuple[MeasuredSample, ...]:
    rate = _product_rate(stopwatch)
    limit = stopwatch.device.info.memory // _PARTS
    prepared: list[tuple[Step, tuple[MeasuredCall, ...]]] = []
    seconds: list[float] = []
    for workload in MicroBenchmarks(stopwatch.device, rate, limit).all(supported):
        progress(workload.what)
        step = captured(workload.prepare())
        # A simulated device may lack memory for all operands, and its times do not vary: the step is dropped after one timing.
        prepared.append((_nothing if stopwatch.is_virtual else step, step_calls(step)))
        seconds.append(stopwatch.replays(step))
    for number in range(0 if stopwatch.is_virtual else _ROUNDS - 1):
        progress(f"round {number + 2} of {_ROUNDS}")
        seconds = [min(s, stopwatch.replays(step)) for s, (step, _) in zip(seconds, prepared, strict=True)]
    return tuple(MeasuredSample(calls, s) for s, (_, calls) in zip(seconds, prepared, strict=True))


def _nothing() -> None:
    """No-op: replaces a step that is no longer needed."""


def _product_rate(stopwatch: Stopwatch) -> float:
    """Return the operations per second of a product that saturates the device."""
    side, seconds = 128, 0.0
    while seconds < _LONG and side < _LARGEST:
        side *= 2
        a, b = (ones((side, side), device=stopwatch.device) for _ in range(2))
        seconds = stopwatch.replays(captured(partial(FUNCTIONS["matmul"], a, b)))
    return 2 * side**3 / seconds


def _facts(device: Device) -> MeasuredDevice:
    info, capabilities = device.info.shown(), device.backend.capabilities
    features = capabilities.features
    units = features.get("compute_units") or features.get("compute units", "1").split()[0]
    limit = capabilities.limits.max_allocation or info.memory
    return MeasuredDevice(
        name=info.name.removeprefix("Simulated "),
        vendor=info.vendor,
        driver=info.driver,
        type=info.type.value,
        compute_units=int(units),
        memory=info.memory,
        max_allocation=min(limit, info.memory),
        local_memory=int(features.get("local_memory", 0)),
        unified_memory=capabilities.unified_memory,
    )
