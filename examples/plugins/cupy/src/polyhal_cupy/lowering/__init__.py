"""Native kernels for whole ops: a table from op name to a function that builds a launch.

A lowering function inspects specs only. It returns `Declined(reason)`, or a launch made with `runtime.launch(...)` from a
file of `kernels/`. Shapes are kernel arguments, not definitions, because each set of definitions is compiled separately.

Each parameter of a kernel is bound by name (see `polyhal.backends.common.launching.launch`): to a `Tensor`, `Workspace` or
`Scalar` by its index in the argument list inputs + outputs + workspace, or to a number. Names and types are checked against the
kernel's source when the launch is built. `LaunchSequence` combines several launches.

To add a kernel:

1. Write `kernels/FAMILY/KERNEL.cu`, which compiles by itself (every constant has a default).
2. Write `lowering/FAMILY/STRATEGY.py`, which launches it; with the kernel's name if it launches only that kernel. The family's
   table `LOWERINGS`, from op name to function, is in that file, or in `dispatch.py` if there are several strategies.
3. Add the module with the table to `_FAMILIES` here.
"""

from __future__ import annotations

from polyhal.backends.common.launching.table import LoweringFunction, merge
from polyhal_cupy.lowering.attention import dispatch as attention
from polyhal_cupy.lowering.conv import dispatch as conv
from polyhal_cupy.lowering.conv import pooling
from polyhal_cupy.lowering.gather import along_axis, gather, scatter_add
from polyhal_cupy.lowering.gemm import dispatch as gemm
from polyhal_cupy.lowering.optim import optimizer
from polyhal_cupy.lowering.pointwise import elementwise, random
from polyhal_cupy.lowering.reduction import dispatch as reduction
from polyhal_cupy.lowering.rowwise import batch_norm, cross_entropy, norm, softmax

_FAMILIES = (
    elementwise, reduction, gather, scatter_add, along_axis, gemm, softmax, norm, cross_entropy, optimizer, attention,
    random, conv, pooling, batch_norm,
)  # fmt: skip


def table() -> dict[str, LoweringFunction]:
    """Return the lowering functions of all native ops. Raises ValueError if two families claim the same op."""
    return merge(_FAMILIES)
