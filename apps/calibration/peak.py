"""Peak rate of multiply-adds in registers, without memory accesses: the reference for efficiencies of kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from polyhal import full, kernel
from polyhal.calibration.stopwatch import Stopwatch, captured
from polyhal.hal.dtypes import DType, float16, float32, float64
from polyhal.hal.errors import PolyhalError

_ITERATIONS = 2048
_SHAPES = ((16, 64), (12, 32))
"""Accumulators and their bytes, tried on CPUs. Enough of them hide the latency of a multiply-add; with the two factors, they
must fit into the registers: 32 of 64 bytes, or 16 of 32."""
_WIDEST = 16
"""Lanes of OpenCL's widest vectors."""
# Operators instead of fma(): every compiler contracts them, while PoCL calls a function for the fma of a vector.
_TEXT = f"""
{{head}}
__kernel void multiply_add(__global const T *x, __global T *out) {{{{
    {{vector}} sums[{{accumulators}}];
    const {{vector}} factor = ({{vector}})(1 - x[0]), addend = ({{vector}})(x[0]);
#pragma unroll
    for (int i = 0; i < {{accumulators}}; i++) sums[i] = ({{vector}})((T)(get_global_id(0) + i));
    for (int k = 0; k < {_ITERATIONS}; k++)
#pragma unroll
        for (int i = 0; i < {{accumulators}}; i++) sums[i] = sums[i] * factor + addend;
    {{vector}} total = sums[0];
#pragma unroll
    for (int i = 1; i < {{accumulators}}; i++) total += sums[i];
    {{store}};
}}}}
"""


def peak_rates(stopwatch: Stopwatch) -> dict[str, float]:
    """Return operations per second by dtype, two for each multiply-add; without dtypes that the device does not support."""
    rates = {d.name: _rate(stopwatch, d) for d in (float32, float16, float64)}
    return {name: rate for name, rate in rates.items() if rate}


def _rate(stopwatch: Stopwatch, dtype: DType) -> float:
    device = stopwatch.device
    features = device.backend.capabilities.features
    if dtype not in device.backend.capabilities.compute or (dtype is float16 and features.get("fp16") != "True"):
        return 0.0  # kernels compute in float32
    cpu = device.type.value == "cpu"
    # GPUs vectorize across work items.
    items = int(features.get("compute_units", 1)) * (64 if cpu else 256 * 32)
    shapes = {(n, min(_WIDEST, size // dtype.itemsize)) for n, size in _SHAPES} if cpu else {(_SHAPES[0][0], 1)}
    rates = [0.0]
    for accumulators, width in shapes:
        run = _multiply_add(dtype, accumulators, width, items, 1 if cpu else 256)
        x = full((width * items,), 1e-3, dtype=dtype, device=device)
        try:
            step = captured(partial(run, x))
        except PolyhalError:  # no OpenCL C, or no support for this dtype
            return 0.0
        seconds = min(stopwatch.replays(step) for _ in range(3))
        rates.append(2.0 * accumulators * _ITERATIONS * width * items / seconds)
    return max(rates)


def _multiply_add(dtype: DType, accumulators: int, width: int, items: int, group: int) -> Callable[..., Any]:
    name = {float32: "float", float16: "half", float64: "double"}[dtype]
    text = _TEXT.format(
        head="#pragma OPENCL EXTENSION cl_khr_fp16 : enable" if dtype is float16 else "",
        accumulators=accumulators,
        vector=f"{name}{width}" if width > 1 else name,
        store=f"vstore{width}(total, get_global_id(0), out)" if width > 1 else "out[get_global_id(0)] = total",
    )
    return kernel(
        "multiply_add",
        opencl=text,
        outputs=lambda x: (x.dtype, x.shape),
        grid=lambda x: items,
        group=group,
        dtypes=(dtype,),
    )
