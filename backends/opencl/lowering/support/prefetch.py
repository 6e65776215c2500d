"""How far ahead of themselves kernels ask for memory (see shaders/opencl/lib/vectors.h)."""

from __future__ import annotations

from polyhal.backends.opencl.runtime import Runtime

_BYTES = 2048


def ahead(runtime: Runtime) -> int:
    """The definition AHEAD: 0 on GPUs, which have other groups to run meanwhile, and under Oclgrind, which cannot do it."""
    features = runtime.features
    return _BYTES if features.cpu and "oclgrind" not in features.platform.lower() else 0
