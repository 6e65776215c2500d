"""Gradients of sums of rows by bags on GPUs: each bag's gradient is read once and added atomically to its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import Arguments, Tensor, after_zeros
from polyhal.backends.opencl_c.lowering.gather.bags import bags_of
from polyhal.backends.opencl_c.lowering.gather.problem import ATOMIC, atomic_definitions
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_OUT = 4
"""Position of the result in the argument list."""


def scatter_bags(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Lower the op `scatter_bags`. Declined if deterministic: the order of atomic additions varies."""
    src, (out,) = inputs[0], outputs
    if not isinstance(src, Spec) or not src.is_contiguous:
        return Declined("the gradient is a number, or not contiguous")
    if runtime.features.cpu or params["deterministic"] or out.dtype not in ATOMIC:
        return Declined("adding atomically is not faster, or not allowed")
    bags, (count, width) = bags_of(inputs, params), src.shape
    if isinstance(bags, Declined):
        return bags
    if src.size >= 1 << 31:
        return Declined("the gradient has 2^31 elements or more")
    quads = (
        runtime.features.quad_atomics and out.dtype is dtypes.float32 and src.aligned and out.aligned and width % 4 == 0
    )
    atomic = atomic_definitions(bags.index.dtype, out.dtype, runtime.features.float_atomics)
    args: Arguments = {"src": Tensor(0), "out": Tensor(_OUT), **bags.args(count, width, out.shape[0])}
    items = count * (width // 4 if quads else width)
    launch = runtime.launch(
        "gather/scatter_bags",
        {**atomic, **bags.definitions, "QUAD_ATOMICS": quads},
        args,
        (items,),
        (runtime.features.group_size,),
    )
    return after_zeros(copy.fill(runtime, out), launch, _OUT)
