"""Native kernels for whole ops: a table from op name to a function that builds a launch.

To add a kernel:

1. Write `shaders/opencl/NAME.cl`. It must compile alone (every constant has an `#ifndef` default) and may include
   `lib/dtypes.h` (LOAD, STORE, STORAGE, COMPUTE per dtype) and `lib/vectors.h`. Shapes are kernel arguments, not definitions:
   each set of definitions is a compilation. The same holds for group sizes, which on PoCL are compiled in.
2. Write `lowering/FAMILY.py` with functions of the type `LoweringFunction` and a dict `LOWERINGS` from op name to function.
3. Add the module to `_FAMILIES` here.

A lowering function looks at specs only, and returns `Declined(reason)` or a launch made with `runtime.launch(...)`. The
parameters of a kernel are listed with the records of `backends.common.launch` and `LocalMemory`, by position in the
argument list inputs + outputs + workspace. Several launches become one with `LaunchSequence`.
`runtime.features` says what the device is like, for choosing among kernels.
"""

from __future__ import annotations

from polyhal.backends.common.launching.table import LoweringFunction, merge
from polyhal.backends.opencl.lowering.attention import dispatch as attention
from polyhal.backends.opencl.lowering.conv import dispatch as conv
from polyhal.backends.opencl.lowering.conv import pooling
from polyhal.backends.opencl.lowering.gather import gather
from polyhal.backends.opencl.lowering.gemm import dispatch as gemm
from polyhal.backends.opencl.lowering.optim import optimizer
from polyhal.backends.opencl.lowering.pointwise import copy, elementwise, random
from polyhal.backends.opencl.lowering.reduction import dispatch as reduction
from polyhal.backends.opencl.lowering.reduction import fused, scan
from polyhal.backends.opencl.lowering.rowwise import batch_norm, cross_entropy, group_norm, norm, softmax
from polyhal.backends.opencl.lowering.sort import dispatch as sort

_FAMILIES = (
    elementwise, fused, copy, reduction, gather, gemm, softmax, norm, cross_entropy, optimizer, attention, random, conv,
    pooling, batch_norm, group_norm, scan, sort,
)  # fmt: skip


def table() -> dict[str, LoweringFunction]:
    """Every op that has a native kernel."""
    return merge(_FAMILIES)
