"""Native kernels for whole ops: a table from op name to the function that builds a launch.

To add a kernel:

1. Write `shaders/wgsl/FAMILY/KERNEL.wgsl`, a Jinja2 template that renders and compiles by itself (every variable has a
   default). Declare its buffers and parameters with the macros of `lib/storage.wgsl`. Shapes are parameters, not
   template variables, because each set of variables is compiled separately. Unroll loops over private arrays in the
   template: dynamic indexing moves arrays out of registers.
2. Write `lowering/FAMILY/STRATEGY.py`, which launches the kernel; with the kernel's name if it launches only that
   kernel. The family's table `LOWERINGS`, from op name to `LoweringFunction`, is in that file, or in `dispatch.py` if
   the family chooses among several strategies.
3. Add the module with the table to `_FAMILIES` here.

A lowering function inspects specs only. It returns `Declined(reason)`, or a launch made with `runtime.launch(...)`. The
parameters of a kernel are bound by name to the records of `backends.common.launching.launch`, which hold indices in the
argument list inputs + outputs + workspace. A tensor `x` also fills the member `o_x`, its offset. `LaunchSequence` combines
several launches. `runtime.features` describes the device, to choose among kernels.
"""

from __future__ import annotations

from polyhal.backends.common.launching.core_methods import Builders
from polyhal.backends.common.launching.table import LoweringFunction, merge
from polyhal.backends.wgpu.lowering.attention import dispatch as attention
from polyhal.backends.wgpu.lowering.conv import banded_matmul, pooling
from polyhal.backends.wgpu.lowering.conv import dispatch as conv
from polyhal.backends.wgpu.lowering.fft import dispatch as fft
from polyhal.backends.wgpu.lowering.gather import along_axis, gather, replace_rows, scatter_add, store_rows
from polyhal.backends.wgpu.lowering.gemm import dispatch as gemm
from polyhal.backends.wgpu.lowering.linear_algebra import factors, solve
from polyhal.backends.wgpu.lowering.optim import optimizer
from polyhal.backends.wgpu.lowering.pointwise import copy, elementwise, foreach, random, rotary
from polyhal.backends.wgpu.lowering.quantized import dequantize
from polyhal.backends.wgpu.lowering.quantized import dispatch as quantized
from polyhal.backends.wgpu.lowering.reduction import dispatch as reduction
from polyhal.backends.wgpu.lowering.reduction import scan
from polyhal.backends.wgpu.lowering.rowwise import batch_norm, cross_entropy, norm, sample_tokens, softmax

_FAMILIES = (
    elementwise, copy, foreach, gather, scatter_add, along_axis, replace_rows, store_rows, random, reduction, scan, pooling,
    softmax, optimizer, gemm, conv, banded_matmul, norm, cross_entropy, batch_norm, attention, fft,
    factors, solve, quantized, dequantize, rotary, sample_tokens,
)  # fmt: skip


BUILDERS = Builders(
    group=elementwise.group,
    copy=copy.copy,
    fill=copy.fill,
    reduce=reduction.build,
    matmul=gemm.batched,
    gather=gather.gather,
    scatter_add=scatter_add.scatter_add,
)
"""Launches of the contract's methods."""


def table() -> dict[str, LoweringFunction]:
    """Return the lowering functions of all ops that have a native kernel."""
    return merge(_FAMILIES)
