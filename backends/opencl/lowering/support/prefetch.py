"""How far ahead of themselves kernels ask for memory (see shaders/opencl/lib/vectors.h)."""

from __future__ import annotations

from polyhal.backends.opencl.runtime import Runtime

_BYTES = 2048


def ahead(runtime: Runtime) -> int:
    """Return the definition PREFETCH_DISTANCE: 0 on GPUs, which hide latency by running other groups meanwhile."""
    features = runtime.features
    return _BYTES if features.cpu and not features.quirks.disable_prefetch else 0
