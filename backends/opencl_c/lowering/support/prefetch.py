"""Prefetch distance of kernels (see shaders/opencl/lib/vectors.h)."""

from __future__ import annotations

from polyhal.backends.opencl_c.runtime import Runtime

_BYTES = 2048


def prefetch_distance(runtime: Runtime) -> int:
    """Return the definition PREFETCH_DISTANCE.

    It is 0 for CPU drivers that are not known to support the instruction, and on GPUs, which hide latency by switching
    between groups.
    """
    features = runtime.features
    return _BYTES if features.cpu and features.quirks.builtin_prefetch else 0
