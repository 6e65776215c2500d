"""Matrix-vector products with one or few vectors: bound by one read of the matrix along its contiguous axis."""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Strided, Tensor
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl_c.lowering.gemm.arguments import definitions, strided
from polyhal.backends.opencl_c.lowering.gemm.joined import divides, joined
from polyhal.backends.opencl_c.lowering.support.epilogue import epilogue
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Launch

_MAX_VECTORS = 4
"""Maximum rows or columns for which a product is bound by the memory traffic of the matrix."""
_GROUP = 128
_LANES = 32
"""Work-items of a GPU that process adjacent vectors of columns; the rest of the group divides the terms."""
_COLUMNS = 4
"""Columns per group of a K-major matrix."""
_CPU_SHORT_COLUMNS, _CPU_GROUP_BYTES = 8, 16 << 10
"""Columns per work-item of a CPU if four have fewer bytes than that: starting a work-item takes as long as reading some KB."""
_CPU_VECTORS = 4
"""Adjacent vectors of columns per work-item of a CPU."""


def build(runtime: Runtime, p: Product) -> Launch | None:
    """Build a launch if one side has few vectors and the other is contiguous along an axis, else return None."""
    if min(p.m, p.n) > _MAX_VECTORS or not divides(p, _COLUMNS):
        return None
    if p.m > p.n and p.joined is None:
        p = p.transposed()
    x, y = p.left, p.right
    k_major = y.row == 1 and x.column == 1 and p.k > 1
    if not k_major and (y.column != 1 or p.joined is not None):
        return None
    cpu = runtime.features.cpu
    width = runtime.features.vector_width
    if p.sum_dtype.itemsize > 4:
        width = max(1, width // 2)
    group, lanes = (1, 1) if cpu else (min(_GROUP, runtime.features.max_group_size), _LANES)
    vectors = _CPU_VECTORS if cpu else 1
    short = cpu and p.m == 1 and _COLUMNS * p.k * p.dtype.itemsize < _CPU_GROUP_BYTES and divides(p, _CPU_SHORT_COLUMNS)
    columns = _CPU_SHORT_COLUMNS if short else _COLUMNS
    macros, epilogue_args = epilogue(p)
    matrices, further_args = joined(p)
    defined = definitions(
        p,
        macros,
        matrices,
        WIDTH=width,
        ROWS=1 if p.m == 1 else _MAX_VECTORS,
        K_MAJOR=k_major,
        GROUP=group,
        LANES=lanes,
        COLUMNS=columns,
        VECTORS=vectors,
    )
    pairs = p.joined is not None and p.joined.pairs
    groups = ceil_div(p.n, columns // (1 + pairs) if k_major else lanes * width * vectors)
    args = {
        "x": strided(x),
        "y": strided(y),
        "out": Strided(Tensor(p.out.place), {"row": p.out.row, "column": p.out.column}),
        "rows": p.m,
        "n": p.n,
        "k": p.k,
        "batch1": p.batch[1],
        "batch2": p.batch[2],
        **further_args,
        **epilogue_args,
    }
    return runtime.launch("gemm/gemv", defined, args, (groups * group, p.count), (group, 1))
