"""How far ahead kernels prefetch memory (see shaders/opencl/lib/vectors.h)."""

from __future__ import annotations

from polyhal.backends.opencl.runtime import Runtime

_BYTES = 2048


def prefetch_distance(runtime: Runtime) -> int:
    """Return the definition PREFETCH_DISTANCE: 0 on GPUs, which hide latency by switching between groups."""
    features = runtime.features
    return _BYTES if features.cpu and not features.quirks.disable_prefetch else 0
