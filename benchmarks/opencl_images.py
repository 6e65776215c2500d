"""Image objects of OpenCL compared with buffers, for the two uses that a texture unit could speed up: a 3x3 convolution per
channel, and bilinear resampling to twice the size. Run by hand; docs/performance-notes.md has the figures:

    python -m benchmarks.opencl_images [PLATFORM]

Each pixel has four float32 channels. The image is sampled with the borders and the interpolation of its sampler, and the
buffer by clamped or masked indices. Both results are compared with NumPy on random data. A driver may interpolate with
weights of 8 bits, as textures do: the error is printed for that reason.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl

from polyhal import Device

_SOURCE = """
__constant sampler_t zeros = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
__constant sampler_t linear = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_LINEAR;

__kernel void conv_image(read_only image2d_t x, __constant float* w, __global float4* y, int width, int height) {
    int c = get_global_id(0), r = get_global_id(1);
    if (c >= width || r >= height) return;
    float4 sum = 0;
    for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 3; ++j) sum += w[3 * i + j] * read_imagef(x, zeros, (int2)(c + j - 1, r + i - 1));
    y[r * width + c] = sum;
}

__kernel void conv_buffer(__global const float4* x, __constant float* w, __global float4* y, int width, int height) {
    int c = get_global_id(0), r = get_global_id(1);
    if (c >= width || r >= height) return;
    float4 sum = 0;
    for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 3; ++j) {
            int cc = c + j - 1, rr = r + i - 1;
            if (cc >= 0 && cc < width && rr >= 0 && rr < height) sum += w[3 * i + j] * x[rr * width + cc];
        }
    y[r * width + c] = sum;
}

__kernel void twice_image(read_only image2d_t x, __constant float* w, __global float4* y, int width, int height) {
    int c = get_global_id(0), r = get_global_id(1);
    if (c >= 2 * width || r >= 2 * height) return;
    y[r * 2 * width + c] = read_imagef(x, linear, (float2)((c + 0.5f) / 2, (r + 0.5f) / 2));
}

__kernel void twice_buffer(__global const float4* x, __constant float* w, __global float4* y, int width, int height) {
    int c = get_global_id(0), r = get_global_id(1);
    if (c >= 2 * width || r >= 2 * height) return;
    float u = fmax((c + 0.5f) / 2 - 0.5f, 0.0f), v = fmax((r + 0.5f) / 2 - 0.5f, 0.0f);
    int c0 = (int)u, r0 = (int)v, c1 = min(c0 + 1, width - 1), r1 = min(r0 + 1, height - 1);
    float4 top = mix(x[r0 * width + c0], x[r0 * width + c1], u - c0);
    float4 bottom = mix(x[r1 * width + c0], x[r1 * width + c1], u - c0);
    y[r * 2 * width + c] = mix(top, bottom, v - r0);
}
"""


def _convolved(x: Any, w: Any) -> Any:
    height, width, _ = x.shape
    padded = np.pad(x.astype(np.float64), ((1, 1), (1, 1), (0, 0)))
    taps = (w[i, j] * padded[i : i + height, j : j + width] for i in range(3) for j in range(3))
    return sum(taps)


def _twice(x: Any) -> Any:
    for axis in (0, 1):
        size = x.shape[axis]
        place = np.maximum((np.arange(2 * size) + 0.5) / 2 - 0.5, 0)
        low = place.astype(int)
        shape = [1, 1, 1]
        shape[axis] = -1
        part = (place - low).reshape(shape)
        x = np.take(x, low, axis) * (1 - part) + np.take(x, np.minimum(low + 1, size - 1), axis) * part
    return x


def _median_ms(runs: dict[str, Callable[[], Any]], rounds: int = 25) -> dict[str, float]:
    """Return the median time of each kernel by the device's timestamps; the kernels alternate."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            event = run()
            event.wait()
            times[name].append((event.profile.end - event.profile.start) / 1e6)
    return {name: statistics.median(t[3:]) for name, t in times.items()}


def _measure(device: Any, size: int) -> None:
    context = cl.Context([device])
    queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    program = cl.Program(context, _SOURCE).build()
    rng = np.random.default_rng()
    x = rng.standard_normal((size, size, 4)).astype(np.float32)
    w = rng.standard_normal((3, 3)).astype(np.float32)
    flags = cl.mem_flags
    pixels = cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=x)
    weights = cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=w)
    image = cl.image_from_array(context, x, 4)

    def copy_to_image() -> Any:
        return cl.enqueue_copy(queue, image, pixels, offset=0, origin=(0, 0, 0), region=(size, size, 1))

    for name, expected in (("conv", _convolved(x, w.astype(np.float64))), ("twice", _twice(x.astype(np.float64)))):
        results = {}
        runs: dict[str, Callable[[], Any]] = {}
        for kind, source in (("image", image), ("buffer", pixels)):
            y = cl.Buffer(context, flags.WRITE_ONLY, size=expected.size * 4)
            kernel = cl.Kernel(program, f"{name}_{kind}")
            kernel.set_args(source, weights, y, np.int32(size), np.int32(size))
            shape = expected.shape[1::-1]
            runs[kind] = partial(cl.enqueue_nd_range_kernel, queue, kernel, shape, (16, 16))
            results[kind] = y
        runs["copy from buffer to image"] = copy_to_image
        times = _median_ms(runs)
        errors = {}
        for kind, y in results.items():
            host = np.empty(expected.shape, np.float32)
            cl.enqueue_copy(queue, host, y)
            errors[kind] = float(np.abs(host - expected).max())
        assert errors["buffer"] < 1e-4, errors
        text = ", ".join(f"{kind} {ms:.3f} ms" for kind, ms in times.items())
        wrong = ", ".join(f"{kind} {error:.1e}" for kind, error in errors.items())
        print(f"{device.name.strip()}: {name} of {size} x {size} x 4: {text}; largest errors: {wrong}", flush=True)


def main() -> None:
    Device.default()  # makes the drivers of installed wheels visible to the loader of OpenCL
    wanted = " ".join(sys.argv[1:]).lower()
    for platform in cl.get_platforms():
        if wanted in platform.name.lower():
            for device in platform.get_devices():
                if device.image_support:
                    for size in (1024, 4096) if device.type & cl.device_type.GPU else (512, 1024):
                        _measure(device, size)
                else:
                    print(f"{device.name.strip()}: no image objects")


if __name__ == "__main__":
    main()
