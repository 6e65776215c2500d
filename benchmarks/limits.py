"""What a device can do at most: the bytes per second of a copy, and on OpenCL the multiply-adds per second of registers."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import polyhal
from polyhal import Device

_COPY_BYTES = {"cpu": 16 << 20, "gpu": 1 << 30}
"""As long as the longest operands of the workloads, which the caches of some processors hold."""
_REPETITIONS = 60
_CHAINS, _TURNS = 16, 2048
_FMA = f"""
__kernel void chains(__global VECTOR *out, const float start) {{
    VECTOR sums[{_CHAINS}];
    const VECTOR factor = (VECTOR)(1.0f - start), addend = (VECTOR)(start);
#pragma unroll
    for (int i = 0; i < {_CHAINS}; i++) sums[i] = (VECTOR)(get_global_id(0) + i);
    for (int turn = 0; turn < {_TURNS}; turn++)
#pragma unroll
        for (int i = 0; i < {_CHAINS}; i++) sums[i] = MULTIPLY_ADD(sums[i], factor, addend);
    VECTOR total = sums[0];
#pragma unroll
    for (int i = 1; i < {_CHAINS}; i++) total += sums[i];
    out[get_global_id(0)] = total;
}}
"""


class Limits(NamedTuple):
    """Bytes read and written per second, and float32 operations per second; 0 where not measured."""

    bytes_per_s: float
    flops_per_s: float


def _least(call: Any, wait: Any) -> float:
    """The least time of many: what the device can do when nothing disturbs it."""
    samples = []
    for _ in range(_REPETITIONS):
        begun = time.perf_counter()
        call()
        wait()
        samples.append(time.perf_counter() - begun)
    return min(samples)


def _copy_rate(device: Device, size: str) -> float:
    nbytes = _COPY_BYTES[size]
    x = polyhal.zeros((nbytes // 4,), device=device)
    out = polyhal.zeros((nbytes // 4,), device=device)
    seconds = _least(lambda: out.copy_(x), device.synchronize)
    return 2 * nbytes / seconds


def _fma_rate(device: Device) -> float:
    runtime = getattr(device.backend, "runtime", None)
    if device.info.backend != "opencl" or runtime is None:
        return 0.0
    import numpy as np
    import pyopencl as cl

    # One vector register per sum: sixteen sums hide the latency of a multiply-add without spilling.
    wide = runtime.features.cpu
    width = runtime.features.vector_width if wide else 1
    # As plain operators, which every compiler contracts: PoCL calls a function for the fma of a vector.
    text = f"#define VECTOR float{width if width > 1 else ''}\n#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))\n{_FMA}"
    kernel = cl.Kernel(cl.Program(runtime.context, text).build(["-cl-mad-enable"]), "chains")
    group = 1 if wide else 256
    items = runtime.features.compute_units * (64 if wide else 256 * 32)
    out = cl.Buffer(runtime.context, cl.mem_flags.WRITE_ONLY, 4 * width * items)
    kernel.set_args(out, np.float32(1e-3))

    def call() -> None:
        cl.enqueue_nd_range_kernel(runtime.queue, kernel, (items,), (group,))

    call()
    seconds = _least(call, runtime.queue.finish)
    return 2.0 * _CHAINS * _TURNS * width * items / seconds


def limits(device: Device, size: str) -> Limits:
    """Measured now, with `size` "cpu" or "gpu" as for the workloads."""
    return Limits(_copy_rate(device, size), _fma_rate(device))
