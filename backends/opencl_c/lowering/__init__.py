"""Native kernels for whole ops: a table that maps an op name to a function that builds a launch.

To add a kernel:

1. Write `shaders/opencl/ROOM/NAME.cl`. It must compile on its own (every constant has an `#ifndef` default) and may
   include `lib/dtypes.h` (LOAD, STORE, STORAGE, COMPUTE per dtype) and `lib/vectors.h`. Shapes are kernel arguments, not
   definitions: each set of definitions is a compilation. Group sizes are not definitions either: some drivers compile in
   the launch's size.
2. Write `lowering/ROOM/NAME.py` with functions of the type `LoweringFunction` and a dict `LOWERINGS` from op name to
   function.
3. Add the module to `_FAMILIES` here.

A lowering function looks at specs only, and returns `Declined(reason)` or a launch made with `runtime.launch(...)`.
Several launches become one with `LaunchSequence`. `runtime.features` describes the device, for choosing among kernels.
A launch has the name of its kernel's function, by default the file's path: pointwise/scale.cl holds `pointwise_scale`.
`explain` and the profiler print these names.

Kernel arguments are passed by name and checked against the kernel's source when the launch is built:

    __kernel void scale(__global const float *x, const ulong x_offset, __global float *out, const ulong out_offset,
                        const uint size, const long x_step, const float factor)

    runtime.launch("pointwise/scale", definitions, {
        "x": Strided(Tensor(0), {"step": spec.strides[0]}), "out": Tensor(2), "size": spec.size, "factor": Scalar(1),
    }, (spec.size,), (group,))

- `Tensor(i)` is input or output i of the op: memory `x`, and its offset in elements, `x_offset`, the next parameter.
  `Workspace(i)` is temporary memory; its `x_offset`, if the kernel has one, is 0. `Table` is constant memory,
  `LocalMemory` is `__local`.
- Numbers known when the launch is built are Python numbers; they are converted to the type that the kernel declares and
  must fit it. `Scalar(i)` is input i, a number that may differ in each call.
- `Strided(memory, {"row": r})` under the name `x` also binds `x_row`. Helpers such as `rows.args` return parts of the dict.
- Beyond 20 numbers, a kernel takes the ones known when the launch is built in one struct by value: `typedef struct
  {...} GemmGeometry;`, as its parameter `const GemmGeometry geometry`. Members are bound by name like parameters. They
  are int, uint, long, ulong, float, double, or arrays, bound to a tuple; members of 8 bytes come first, so
  that host and device agree on the layout.
- The signature may use macros and `#if`, of the file, its headers and its definitions; it ends outside of `#if`.
"""

from __future__ import annotations

from polyhal.backends.common.launching.core_methods import Builders
from polyhal.backends.common.launching.table import LoweringFunction, merge
from polyhal.backends.opencl_c.lowering.attention import dispatch as attention
from polyhal.backends.opencl_c.lowering.conv import banded_matmul, banded_planes, pooling
from polyhal.backends.opencl_c.lowering.conv import batch_norm as conv_batch_norm
from polyhal.backends.opencl_c.lowering.conv import dispatch as conv
from polyhal.backends.opencl_c.lowering.fft import dispatch as fft
from polyhal.backends.opencl_c.lowering.gather import dispatch as gather
from polyhal.backends.opencl_c.lowering.gather import gather as gather_rows
from polyhal.backends.opencl_c.lowering.gather import scatter_add
from polyhal.backends.opencl_c.lowering.gemm import dispatch as gemm
from polyhal.backends.opencl_c.lowering.linear_algebra import (
    cholesky,
    jacobi,
    lu,
    qr,
    row_order,
    solve,
    triangular_solve,
    unit_lower,
)
from polyhal.backends.opencl_c.lowering.optim import optimizer
from polyhal.backends.opencl_c.lowering.pointwise import copies, copy, elementwise, foreach, random, rotary
from polyhal.backends.opencl_c.lowering.quantized import dequantize
from polyhal.backends.opencl_c.lowering.quantized import dispatch as quantized
from polyhal.backends.opencl_c.lowering.recurrent import dispatch as recurrent
from polyhal.backends.opencl_c.lowering.reduction import dispatch as reduction
from polyhal.backends.opencl_c.lowering.reduction import fused, scan
from polyhal.backends.opencl_c.lowering.rowwise import (
    batch_norm,
    cross_entropy,
    group_norm,
    norm,
    sample_tokens,
    softmax,
)
from polyhal.backends.opencl_c.lowering.sort import dispatch as sort

_FAMILIES = (
    elementwise, foreach, fused, copy, copies, reduction, gather, gemm, softmax, norm, cross_entropy, optimizer, attention,
    random, rotary, sample_tokens, conv, conv_batch_norm, pooling, banded_matmul, banded_planes, batch_norm, group_norm, scan,
    sort, recurrent, fft, quantized, dequantize, cholesky, jacobi, lu, qr, row_order, solve, triangular_solve, unit_lower,
)  # fmt: skip

BUILDERS = Builders(
    group=elementwise.group,
    copy=copy.copy,
    fill=copy.fill,
    reduce=reduction.build,
    matmul=gemm.batched,
    gather=gather_rows.gather,
    scatter_add=scatter_add.scatter_add,
)
"""Builders of the launches for the contract's methods."""


def table() -> dict[str, LoweringFunction]:
    """Return the lowering function of every op that has a native kernel."""
    return merge(_FAMILIES)
