"""Matrix products: which kernel takes which shapes.

All of them take operands of any strides, so that a transposed view costs no copy.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Tensor
from polyhal.backends.common.problems import fused_gemm, gemm
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl.lowering.gemm import cpu_panels, gemv, sliced_k, tensor_cores, tiles
from polyhal.backends.opencl.lowering.gemm.arguments import definitions, geometry
from polyhal.backends.opencl.lowering.support.epilogue import epilogue
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.protocol import Declined, Launch

_SMALL = 1 << 15
"""Multiplications below which packing or tiling costs more than it saves."""
_SMALL_GROUP = 16
_SMALL_ROWS = 4


def build(runtime: Runtime, p: Product) -> Launch:
    """The launch for a product."""
    if p.dtype.kind == "bool":
        return _small(runtime, p)
    vector = gemv.build(runtime, p)
    if vector is not None:
        return vector
    if p.count * p.m * p.n * p.k <= _SMALL:
        return _small(runtime, p)
    if runtime.features.cpu:
        return cpu_panels.build(runtime, p)
    if runtime.features.max_group_size < tiles.GROUP:
        return _small(runtime, p)
    if _in_slices(runtime, p):
        return sliced_k.build(runtime, p)
    narrow = _is_narrow(p)
    on_tensor_cores = tensor_cores.build(runtime, p) if runtime.features.tensor_cores and not narrow else None
    if on_tensor_cores is None and not narrow and sliced_k.suits(runtime, p):
        return sliced_k.build(runtime, p)
    return on_tensor_cores or tiles.build(runtime, p)


def _is_narrow(p: Product) -> bool:
    return min(p.m, p.n) < _SMALL_GROUP


def _in_slices(runtime: Runtime, p: Product) -> bool:
    """Whether a product is made in slices rather than on tensor cores.

    There the parts of single-precision operands, and their sums, would be launches of their own.
    """
    return (_is_narrow(p) or p.dtype is dtypes.float32) and sliced_k.suits(runtime, p)


def _with_sums(runtime: Runtime, p: Product) -> Launch | Declined:
    """The launch for a product that also adds up the rows of its left operand."""
    if runtime.features.cpu:
        if min(p.m, p.n) > 1 and p.m * p.n * p.k > _SMALL and cpu_panels.adds_rows(p):
            return cpu_panels.build(runtime, p)
    elif _in_slices(runtime, p):
        return sliced_k.build(runtime, p)
    return Declined("the kernel for this product adds up no rows")


def _small(runtime: Runtime, p: Product) -> Launch:
    """Straight from memory."""
    finishing, finishing_args = epilogue(p)
    args = {**geometry(p), **finishing_args, "out": Tensor(p.out.place)}
    items = (p.n, ceil_div(p.m, _SMALL_ROWS), p.count)
    defined = definitions(p, finishing, ROWS=_SMALL_ROWS, LOGICAL=p.out_dtype.kind == "bool")
    return runtime.launch("matmul_small", "gemm/strided", defined, args, items, (_SMALL_GROUP, 1, 1))


batched = partial(gemm.batched, build)


def _apart(runtime: Runtime) -> Collection[str]:
    """On CPUs the tile's sums leave no registers for the longest formulas (`gelu_grad` here: 500 us, 440 in two launches)."""
    return ("gelu_grad", "silu_grad") if runtime.features.cpu else ()


LOWERINGS = {
    **gemm.lowerings(build, wide=True, epilogues=True),
    **fused_gemm.lowerings(build, _apart),
    "linear_weight_grad": gemm.weight_grad(_with_sums),
}
