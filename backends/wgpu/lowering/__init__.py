"""Native kernels for whole ops: a table from op name to a function that builds a launch.

To add a kernel:

1. Write `shaders/wgsl/NAME.wgsl`, a Jinja2 template that renders and compiles alone (every variable has a default). It
   declares buffers and parameters with the macros of `lib/storage.wgsl`. Shapes are parameters, not template variables: each
   set of variables is a compilation. Arrays that are indexed in loops leave registers: unroll them in the template.
2. Write `lowering/FAMILY.py` with functions of the type `LoweringFunction` and a dict `LOWERINGS` from op name to function.
3. Add the module to `_FAMILIES` here.

A lowering function looks at specs only, and returns `Declined(reason)` or a launch made with `runtime.launch(...)`. The
parameters of a kernel are listed with the records of `backends.common.launch`, by position in the argument list
inputs + outputs + workspace. Several launches become one with `LaunchSequence`. `runtime.features` says what the device
is like, for choosing among kernels.
"""

from __future__ import annotations

from polyhal.backends.common.launching.table import LoweringFunction, merge
from polyhal.backends.wgpu.lowering.attention import dispatch as attention
from polyhal.backends.wgpu.lowering.conv import dispatch as conv
from polyhal.backends.wgpu.lowering.conv import pooling
from polyhal.backends.wgpu.lowering.gather import dispatch as gather
from polyhal.backends.wgpu.lowering.gemm import dispatch as gemm
from polyhal.backends.wgpu.lowering.optim import optimizer
from polyhal.backends.wgpu.lowering.pointwise import copy, elementwise, random
from polyhal.backends.wgpu.lowering.reduction import dispatch as reduction
from polyhal.backends.wgpu.lowering.rowwise import batch_norm, cross_entropy, norm, softmax

_FAMILIES = (
    elementwise, copy, gather, random, reduction, pooling, softmax, optimizer, gemm, conv, norm, cross_entropy,
    batch_norm, attention,
)  # fmt: skip


def table() -> dict[str, LoweringFunction]:
    """Every op that has a native kernel."""
    return merge(_FAMILIES)
