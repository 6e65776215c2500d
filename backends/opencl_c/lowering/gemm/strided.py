"""Matrix products with operands in global memory: for tiny products and for dtypes without a faster kernel."""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Tensor
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl_c.lowering.gemm.arguments import definitions, geometry
from polyhal.backends.opencl_c.lowering.support.epilogue import epilogue
from polyhal.backends.opencl_c.lowering.support.wave import filled
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Launch

_GROUP = 16
_ROWS = 4
"""Results per work-item."""


def build(runtime: Runtime, p: Product) -> Launch:
    """Build the launch for a product. Raises KernelBuildError."""
    macros, epilogue_args = epilogue(p)
    args = {**geometry(p), **epilogue_args, "out": Tensor(p.out.place)}
    group = filled(runtime.features, _GROUP)
    items = (p.n, ceil_div(p.m, _ROWS), p.count)
    defined = definitions(p, macros, ROWS=_ROWS, LOGICAL=p.out_dtype.kind == "bool")
    return runtime.launch("gemm/strided", defined, args, items, (group, 1, 1))
