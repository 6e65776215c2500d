"""Peak rates of each device: bandwidth of copies and, on OpenCL, rate of multiply-adds in registers.

The other benchmarks relate their results to these limits. The rates of matrix units come from the vendor's data sheet, for
cards of the catalogue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import polyhal
from benchmarks.arguments import make_parser, open_devices
from benchmarks.result_files import describe_machine, write
from polyhal import Device
from polyhal.calibration.peak import peak_rates
from polyhal.calibration.stopwatch import Stopwatch
from polyhal.hal.core.hardware import catalogue

_COPY_BYTES = {"cpu": 16 << 20, "gpu": 1 << 30}
"""As large as the largest operands of the op workloads; on some processors a part of them fits into the caches."""
_REPETITIONS = 60


class Peak(NamedTuple):
    """Bytes read and written per second, and operations per second, in float32 if not said; 0 if not measured."""

    bytes_per_s: float
    flops_per_s: float
    matrix_flops_per_s: Mapping[str, float]
    """The data sheet's rates in 16-bit dtypes, which a kernel in plain OpenCL C cannot measure; empty if unknown."""

    def rate(self, name: str) -> float:
        """Return the rate that `OpWorkload.limit` names; 0 if it is unknown."""
        return self._asdict().get(name) or self.matrix_flops_per_s.get(name, 0.0)


def measure(device: Device, size: str) -> Peak:
    """Measure the peak rates of a device, with buffers for workloads of `size` "cpu" or "gpu"."""
    flops = peak_rates(Stopwatch(device)).get("float32", 0.0)
    return Peak(_copy_rate(device, size), flops, _matrix_rates(device.info.name))


def _matrix_rates(name: str) -> dict[str, float]:
    """Return the rates of 16-bit dtypes on the card that has this name."""
    for card in map(catalogue.find, catalogue.names("performance")):
        if f"{card.vendor} {card.title}" == name:
            rates = card.section("performance.peak_tflop_s")
            return {dtype: rates[dtype] * 1e12 for dtype in ("float16", "bfloat16") if dtype in rates}
    return {}


def _fastest(call: Callable[[], object], wait: Callable[[], object]) -> float:
    """Return the shortest time of many, in seconds: the undisturbed speed of the device."""
    samples = []
    for _ in range(_REPETITIONS):
        begin = time.perf_counter()
        call()
        wait()
        samples.append(time.perf_counter() - begin)
    return min(samples)


def _copy_rate(device: Device, size: str) -> float:
    nbytes = _COPY_BYTES[size]
    x = polyhal.zeros((nbytes // 4,), device=device)
    out = polyhal.zeros((nbytes // 4,), device=device)
    seconds = _fastest(lambda: out.copy_(x), device.synchronize)
    return 2 * nbytes / seconds


def main(arguments: Sequence[str]) -> int:
    args = make_parser("peak", __doc__).parse_args(arguments)
    devices = open_devices(args.devices)
    rows = []
    for device in devices:
        peak = measure(device, device.type.value if device.type.value in _COPY_BYTES else "gpu")
        rows.append({"device": device.name, **peak._asdict()})
        fma = f"   multiply-adds {peak.flops_per_s / 1e9:,.0f} GFLOP/s" if peak.flops_per_s else ""
        print(f"{device.name:<12} copies {peak.bytes_per_s / 1e9:,.1f} GB/s{fma}   {device.info.name}", flush=True)
    write(args.json, {"benchmark": "peak", **describe_machine(devices), "rows": rows})
    return 0
