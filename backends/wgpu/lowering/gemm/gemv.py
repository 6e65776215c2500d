"""Matrix-vector products on GPUs, and products of a few vectors with a matrix, or with several: each is read once, along k.

Kernel: shaders/wgsl/gemm/gemv.wgsl.
"""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.wgpu.lowering.gemm import joined
from polyhal.backends.wgpu.lowering.gemm.arguments import LANES, arguments, definitions, layouts
from polyhal.backends.wgpu.lowering.support import group_reduce
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.protocol import Launch

MAX_VECTORS = 4
"""Maximum rows or columns for which a product is bound by reading the matrix."""
_MIN_TERMS = 512
"""Minimum terms for which splitting them within a workgroup is faster."""
_GROUP = 128
_COLUMNS = 4
_UNROLL = 4
"""Maximum loads of four terms per column that an invocation has in flight."""


def build(runtime: Runtime, p: Product) -> Launch | None:
    """Return a launch if one side has few vectors and both operands are contiguous along k, else None."""
    if min(p.m, p.n) > MAX_VECTORS:
        return None
    if p.m > p.n and p.joined is None:
        p = p.transposed()
    columns = _COLUMNS // 2 if p.joined is not None and p.joined.pairs else _COLUMNS
    if p.m > MAX_VECTORS or p.right.row != 1 or p.left.column != 1 or p.k < _MIN_TERMS or joined.divided(p, columns):
        return None
    variables_of_joined, args = joined.joined(p, "b")
    if _in_eights(runtime, p):
        terms = 2 * LANES
        variables_of_joined |= {"A_LANES": terms, "B_LANES": terms, "SCALE_LANES": terms}
    else:
        terms = LANES
    variables = {
        **definitions(p, split=False),
        **group_reduce.definitions(runtime, _GROUP, _GROUP),
        **layouts(p),
        "OUT_LANES": 1,
        "ROWS": 1 if p.m == 1 else MAX_VECTORS,
        "COLUMNS": columns,
        "UNROLL": max(1, min(_UNROLL, p.k // (_GROUP * terms))) if p.m == 1 else 1,
        **variables_of_joined,
    }
    groups = ceil_div(p.n, columns) * p.count
    return runtime.launch("gemm/gemv", variables, {**arguments(p, p.k, split=False), **args}, groups)


def _in_eights(runtime: Runtime, p: Product) -> bool:
    """Return whether invocations load eight terms at a time: floats of 16 bits in words, of one row."""
    in_words = p.dtype is dtypes.bfloat16 or (p.dtype is dtypes.float16 and not runtime.features.float16)
    aligned = (
        p.left.aligned and p.right.aligned and (p.joined is None or p.joined.norm is None or p.joined.norm_aligned)
    )
    strides = (p.right.column, *p.left.batch, *p.right.batch)
    return in_words and p.m == 1 and aligned and all(s % (2 * LANES) == 0 for s in strides)
