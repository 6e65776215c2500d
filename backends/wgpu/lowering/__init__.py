"""Native kernels for whole ops: a table from op name to a function that builds a launch.

To add a kernel:

1. Write `shaders/wgsl/NAME.wgsl`, a Jinja2 template that renders and compiles alone (every variable has a default). It
   declares buffers and parameters with the macros of `storage.wgsl`. Shapes are parameters, not template variables: each
   set of variables is a compilation. Arrays that are indexed in loops leave registers: unroll them in the template.
2. Write `lowering/FAMILY.py` with functions of the type `LoweringFunction` and a dict `LOWERINGS` from op name to function.
3. Add the module to `_FAMILIES` here.

A lowering function looks at specs only, and returns `Declined(reason)` or a launch made with `runtime.launch(...)`. The
parameters of a kernel are listed with the records of `backends.common.launch`, by position in the argument list
inputs + outputs + workspace. Several launches become one with `LaunchSequence`. `runtime.features` says what the device
is like, for choosing among kernels.
"""

from __future__ import annotations

from polyhal.backends.common.lowering import LoweringFunction, merge
from polyhal.backends.wgpu.lowering import (
    attention,
    batch_norm,
    convolution,
    elementwise,
    indexing,
    loss,
    matmul,
    movement,
    norm,
    optimizer,
    pooling,
    random,
    reduce,
    softmax,
)  # fmt: skip

_FAMILIES = (
    elementwise, movement, indexing, random, reduce, pooling, softmax, optimizer, matmul, convolution, norm, loss,
    batch_norm, attention,
)  # fmt: skip


def table() -> dict[str, LoweringFunction]:
    """Every op that has a native kernel."""
    return merge(_FAMILIES)
