"""How the work-items of a group exchange values in a reduction (see shaders/opencl/lib/group_reduce.h)."""

from __future__ import annotations

from polyhal.backends.opencl.runtime import Runtime

_LOCAL_MEMORY, _SUBGROUPS, _NVIDIA = 0, 1, 2


def exchange(runtime: Runtime, itemsize: int, lanes: int, group: int) -> int:
    """Return the definition EXCHANGE for values of `itemsize` bytes, reduced over `lanes` of `group` work-items."""
    features = runtime.features
    if features.cpu or itemsize != 4 or lanes == 1:
        return _LOCAL_MEMORY
    if features.float_atomics == "ptx":
        return _NVIDIA
    if lanes == group and features.subgroups and "cl_khr_subgroup_shuffle" in runtime.device.extensions.split():
        return _SUBGROUPS
    return _LOCAL_MEMORY
