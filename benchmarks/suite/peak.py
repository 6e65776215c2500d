"""What each device can reach: bandwidth of copies and, on OpenCL, rate of multiply-adds in registers.

The other benchmarks relate their results to these limits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import polyhal
from benchmarks.arguments import make_parser, open_devices
from benchmarks.result_files import describe_machine, write
from polyhal import Device

_COPY_BYTES = {"cpu": 16 << 20, "gpu": 1 << 30}
"""As large as the largest operands of the op workloads, some of which fit into the caches of some processors."""
_REPETITIONS = 60
_ACCUMULATORS, _ITERATIONS = 16, 2048
_FMA = f"""
__kernel void multiply_add(__global VECTOR *out, const float start) {{
    VECTOR sums[{_ACCUMULATORS}];
    const VECTOR factor = (VECTOR)(1.0f - start), addend = (VECTOR)(start);
#pragma unroll
    for (int i = 0; i < {_ACCUMULATORS}; i++) sums[i] = (VECTOR)(get_global_id(0) + i);
    for (int k = 0; k < {_ITERATIONS}; k++)
#pragma unroll
        for (int i = 0; i < {_ACCUMULATORS}; i++) sums[i] = MULTIPLY_ADD(sums[i], factor, addend);
    VECTOR total = sums[0];
#pragma unroll
    for (int i = 1; i < {_ACCUMULATORS}; i++) total += sums[i];
    out[get_global_id(0)] = total;
}}
"""


class Peak(NamedTuple):
    """Bytes read and written per second, and float32 operations per second; 0 if not measured."""

    bytes_per_s: float
    flops_per_s: float


def measure(device: Device, size: str) -> Peak:
    """Measure the peak rates of a device, with buffers for workloads of `size` "cpu" or "gpu"."""
    return Peak(_copy_rate(device, size), _fma_rate(device))


def _fastest(call: Callable[[], object], wait: Callable[[], object]) -> float:
    """The shortest time of many, in seconds: what the device can do undisturbed."""
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


def _fma_rate(device: Device) -> float:
    runtime = getattr(device.backend, "runtime", None)
    if device.info.backend != "opencl" or runtime is None:
        return 0.0
    import numpy as np
    import pyopencl as cl

    # One vector register per sum: sixteen sums hide the latency of a multiply-add without spilling.
    cpu = runtime.features.cpu
    width = runtime.features.vector_width if cpu else 1
    # Written with operators, which every compiler contracts: PoCL calls a function for the fma of a vector.
    text = f"#define VECTOR float{width if width > 1 else ''}\n#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))\n{_FMA}"
    kernel = cl.Kernel(cl.Program(runtime.context, text).build(["-cl-mad-enable"]), "multiply_add")
    group = 1 if cpu else 256
    items = runtime.features.compute_units * (64 if cpu else 256 * 32)
    out = cl.Buffer(runtime.context, cl.mem_flags.WRITE_ONLY, 4 * width * items)
    kernel.set_args(out, np.float32(1e-3))

    def call() -> None:
        cl.enqueue_nd_range_kernel(runtime.queue, kernel, (items,), (group,))

    call()
    seconds = _fastest(call, runtime.queue.finish)
    return 2.0 * _ACCUMULATORS * _ITERATIONS * width * items / seconds


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
