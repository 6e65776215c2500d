"""Float32 recomputation of non-finite results of split products: splitting turns infinities into NaN."""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import Tensor
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl_c.lowering.gemm.arguments import geometry
from polyhal.backends.opencl_c.lowering.support.epilogue import epilogue
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Launch

_PER_ITEM = 4
"""Results per work-item that are checked at a time."""
_GROUPS_PER_UNIT = 16
"""Maximum groups per compute unit."""


def build(runtime: Runtime, p: Product) -> Launch:
    """Build the launch that follows a split product. Raises KernelBuildError."""
    macros, epilogue_args = epilogue(p)
    size = p.count * p.m * p.n
    group = runtime.features.group_size
    items = min(round_up(ceil_div(size, _PER_ITEM), group), runtime.features.compute_units * _GROUPS_PER_UNIT * group)
    return runtime.launch(
        "gemm/bf16_repair",
        {"REAL": "float", "WIDTH": 1, **macros},
        {**geometry(p), **epilogue_args, "out": Tensor(p.out.place), "size": size},
        (items,),
        (group,),
    )
