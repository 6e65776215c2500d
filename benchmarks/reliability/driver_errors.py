"""Errors of real drivers: an invalid request must raise a typed error with its cause on each OpenCL device, and the
device must stay usable.

Injected faults belong to the simulated GPU; these errors are raised by a driver of the machine itself.
"""

from __future__ import annotations

import gc
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polyhal as ph
from benchmarks.reliability.machine_devices import names
from polyhal.hal.device import Device
from polyhal.hal.errors import BackendError, KernelBuildError, OutOfMemoryError, PolyhalError

_MIB = 2**20


@dataclass(frozen=True, slots=True)
class DriverErrorsResult:
    """Counts of a campaign."""

    provoked: int
    recovered: int
    """Errors after which the device computed right results, with as much memory as before."""
    leaks: int
    outcomes: dict[str, dict[str, int]]
    """Counts by kind of fault and by outcome."""
    findings: tuple[str, ...]


def driver_errors(repeats: int, devices: tuple[str, ...] | None = None) -> DriverErrorsResult:
    """Provoke each error `repeats` times on each OpenCL device."""
    outcomes: dict[str, Counter[str]] = {}
    findings: list[str] = []
    leaks = 0
    for name in names("opencl") if devices is None else devices:
        device = Device(name)
        for kind, provoke in KINDS.items():
            row = outcomes.setdefault(f"{kind}, on {device.info.name} ({name})", Counter())
            for _ in range(repeats):
                outcome, left = attempt(device, provoke)
                row[outcome] += 1
                leaks += left
                if outcome not in ("refused", "works"):
                    findings.append(f"{name}, {kind}: {outcome}")
    total = sum(sum(row.values()) for row in outcomes.values())
    recovered = total - len(findings)
    return DriverErrorsResult(total, recovered, leaks, {k: dict(v) for k, v in outcomes.items()}, tuple(findings))


def attempt(device: Device, provoke: Callable[[Device], str]) -> tuple[str, bool]:
    """Provoke an error once. Returns `refused`, `works` or a description of the problem, and whether memory is
    leaked."""
    gc.collect()
    used = device.memory_stats().used
    try:
        outcome = provoke(device)
        if (ph.ones((4,), device=device) + 1).tolist() != [2] * 4:
            outcome = "the device computes wrong results afterwards"
    except PolyhalError as error:
        outcome = f"the device does not go on: {error}"
    gc.collect()
    left = device.memory_stats().used - used
    device.empty_cache()
    return (f"{left} bytes are left" if left else outcome), bool(left)


def _refused(
    action: Callable[[], object], error: type[PolyhalError] | tuple[type[PolyhalError], ...], text: str
) -> str:
    """Return whether an action raises such an error with a matching text."""
    try:
        action()
    except error as refusal:
        return "refused" if re.search(text, str(refusal)) else f"the error does not say {text!r}: {refusal}"
    except Exception as other:
        return f"{type(other).__name__} instead: {other}"
    return "no error"


def _driver(device: Device) -> Any:
    """Return the driver's description of a device."""
    backend: Any = device.backend
    return backend.runtime.device


def _kernel(body: str, group: int = 64) -> Any:
    """Return a kernel as users write them."""
    source = f"__kernel void broken(__global const T *x, __global T *out) {{\n  {body}\n}}"
    return ph.kernel("broken", opencl=source, numpy=lambda x: x, group=(group,))


def too_large(device: Device) -> str:
    """Request a tensor larger than the device allows in one allocation."""
    largest = device.capabilities.limits.max_allocation
    text = rf"^\[full\] no memory for \d+.* MiB.*{largest / _MIB:.2f} MiB.*{device}"
    return _refused(lambda: ph.zeros((largest + _MIB,), dtype="uint8", device=device), OutOfMemoryError, text)


def exhausted(device: Device) -> str:
    """Fill the pool up to its limit. One more tensor must be refused, and fit after another one is freed."""
    device.empty_cache()
    device.set_memory_limit(device.memory_stats().reserved + 8 * _MIB)
    try:
        held = [ph.zeros((_MIB,), dtype="uint8", device=device) for _ in range(8)]
        text = r"^\[full\] no memory for 1.00 MiB: .*set_memory_limit.*smaller batch"
        outcome = _refused(lambda: ph.zeros((_MIB,), dtype="uint8", device=device), OutOfMemoryError, text)
        held.pop()
        held.append(ph.ones((_MIB,), dtype="uint8", device=device))
        return outcome if held[-1][-1].item() == 1 else "a wrong result after it"
    finally:
        device.set_memory_limit(None)


def does_not_build(device: Device) -> str:
    """Launch a kernel with an error in its text."""
    x = ph.ones((64,), device=device)
    text = r"(?s)^\[broken.cl\] the driver refused the kernel; .*> broken.cl:2 +\| +out\[0\] = missing"
    return _refused(lambda: _kernel("out[0] = missing;")(x), KernelBuildError, text)


def group_too_large(device: Device) -> str:
    """Launch twice as many work-items per group as the device allows."""
    limit = int(_driver(device).max_work_group_size)
    x = ph.ones((64,), device=device)
    text = rf"broken.* at most {limit} work-items.*smaller `group`"
    kernel = _kernel("out[get_global_id(0) % 64] = x[0];", group=2 * limit)
    return _refused(lambda: kernel(x), BackendError, text)


def local_memory_too_large(device: Device) -> str:
    """Launch a kernel with four times the available local memory. If a driver runs it nevertheless, the result must be
    right."""
    floats = int(_driver(device).local_mem_size)
    x = ph.ones((64,), device=device)
    wasteful = _kernel(
        f"__local T big[{floats}]; big[get_local_id(0)] = x[get_global_id(0)]; barrier(CLK_LOCAL_MEM_FENCE);\n"
        "  out[get_global_id(0)] = 2 * big[63 - get_local_id(0)];"
    )
    results: list[list[float]] = []
    outcome = _refused(
        lambda: results.append(wasteful(x).tolist()), (OutOfMemoryError, BackendError), "(?s)broken.*local memory"
    )
    return "works" if outcome == "no error" and results == [[2] * 64] else outcome


KINDS: dict[str, Callable[[Device], str]] = {
    "out of memory by size": too_large,
    "out of memory by exhaustion": exhausted,
    "build failure": does_not_build,
    "too large local memory": local_memory_too_large,
    "group over the limit": group_too_large,
}


if __name__ == "__main__":
    print(driver_errors(int(sys.argv[1])))
