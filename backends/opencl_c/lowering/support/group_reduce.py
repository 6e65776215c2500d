"""Exchange of values among the work-items of a group in a reduction (see shaders/opencl/lib/group_reduce.h)."""

from __future__ import annotations

from polyhal.backends.opencl_c.language import BY_LOCAL_MEMORY, BY_SUBGROUPS, BY_WARPS
from polyhal.backends.opencl_c.runtime import Runtime


def exchange(runtime: Runtime, itemsize: int, lanes: int, group: int) -> int:
    """Return the definition EXCHANGE for values of `itemsize` bytes, reduced over `lanes` of `group` work-items."""
    features = runtime.features
    if features.cpu or itemsize != 4 or lanes == 1:
        return BY_LOCAL_MEMORY
    if features.float_atomics == "ptx":
        return BY_WARPS
    if lanes == group and features.subgroups:
        return BY_SUBGROUPS
    return BY_LOCAL_MEMORY


def exchange_of_words(runtime: Runtime) -> int:
    """Return the definition EXCHANGE for kernels that exchange words of 32 bits within warps (lib/warp.h)."""
    return BY_WARPS if runtime.features.float_atomics == "ptx" else BY_LOCAL_MEMORY
