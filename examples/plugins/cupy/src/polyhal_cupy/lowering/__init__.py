"""Native kernels for whole ops: a table from op name to a function that builds a launch.

A lowering function looks at specs only, and returns `Declined(reason)` or a launch made with `runtime.launch(...)` from a
file of `kernels/`. Shapes are kernel arguments and not definitions, because each set of definitions is a compilation.
Parameters are pointers, numbers and constants (see launch.py), by position in the argument list inputs + outputs +
workspace. Several launches become one with `LaunchSequence`.

To add a kernel: write `kernels/NAME.cu`, a lowering function, and an entry in the module's `LOWERINGS`.
"""

from __future__ import annotations

from polyhal.backends.common.lowering import LoweringFunction, merge
from polyhal_cupy.lowering import (
    attention,
    batch_norm,
    convolution,
    elementwise,
    indexing,
    loss,
    matmul,
    norm,
    optimizer,
    pooling,
    random,
    reduce,
    softmax,
)

_FAMILIES = (
    elementwise, reduce, indexing, matmul, softmax, norm, loss, optimizer, attention, random, convolution, pooling, batch_norm,
)  # fmt: skip


def table() -> dict[str, LoweringFunction]:
    """Every op that has a native kernel. Raises ValueError when two families claim one op."""
    return merge(_FAMILIES)
