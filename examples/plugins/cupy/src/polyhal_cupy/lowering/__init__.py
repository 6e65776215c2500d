"""Native kernels for whole ops: a table from op name to a function that builds a launch.

A lowering function looks at specs only, and returns `Declined(reason)` or a launch made with `runtime.launch(...)` from a
file of `kernels/`. Shapes are kernel arguments and not definitions, because each set of definitions is a compilation.
Parameters are pointers, numbers and constants (see launch.py), by position in the argument list inputs + outputs +
workspace. Several launches become one with `LaunchSequence`.

To add a kernel: write `kernels/NAME.cu`, a lowering function, and an entry in the module's `LOWERINGS`.
"""

from __future__ import annotations

from polyhal.backends.common.launching.table import LoweringFunction, merge
from polyhal_cupy.lowering.attention import dispatch as attention
from polyhal_cupy.lowering.conv import dispatch as conv
from polyhal_cupy.lowering.conv import pooling
from polyhal_cupy.lowering.gather import dispatch as gather
from polyhal_cupy.lowering.gemm import dispatch as gemm
from polyhal_cupy.lowering.optim import optimizer
from polyhal_cupy.lowering.pointwise import elementwise, random
from polyhal_cupy.lowering.reduction import dispatch as reduction
from polyhal_cupy.lowering.rowwise import batch_norm, cross_entropy, norm, softmax

_FAMILIES = (
    elementwise, reduction, gather, gemm, softmax, norm, cross_entropy, optimizer, attention, random, conv, pooling,
    batch_norm,
)  # fmt: skip


def table() -> dict[str, LoweringFunction]:
    """Every op that has a native kernel. Raises ValueError when two families claim one op."""
    return merge(_FAMILIES)
