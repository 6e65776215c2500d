"""Products with few rows or columns, which are bound by reading the matrix: it is read once, along its contiguous axis."""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Strided, Tensor
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl.lowering.gemm.arguments import definitions, strided
from polyhal.backends.opencl.lowering.support.epilogue import epilogue
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.protocol import Launch

_FEW = 4
"""Up to so many rows or columns a product is bound by reading the matrix."""
_GROUP = 128
_SIDE = 32
_STRIPS = 4
"""Vectors side by side that a CPU takes from each row of a matrix whose rows are contiguous."""


def build(runtime: Runtime, p: Product) -> Launch | None:
    """A launch where one side has few vectors and the other is contiguous along some axis, else None."""
    if min(p.m, p.n) > _FEW:
        return None
    if p.m > p.n:
        p = p.transposed()
    x, y = p.left, p.right
    along = y.row == 1 and x.column == 1 and p.k > 1
    if not along and y.column != 1:
        return None
    cpu = runtime.features.cpu
    width = runtime.features.vector_width
    if p.sum_dtype.itemsize > 4:
        width = max(1, width // 2)
    group, side = (1, 1) if cpu else (min(_GROUP, runtime.features.max_group_size), _SIDE)
    per_item, strips = 4, _STRIPS if cpu else 1
    finishing, finishing_args = epilogue(p)
    defined = definitions(
        p, finishing, WIDTH=width, ROWS=1 if p.m == 1 else _FEW, ALONG=along, GROUP=group, SIDE=side, COLUMNS=per_item,
        STRIPS=strips,
    )  # fmt: skip
    groups = ceil_div(p.n, per_item if along else side * width * strips)
    args = {
        "x": strided(x), "y": strided(y), "out": Strided(Tensor(p.out.place), {"row": p.out.row, "column": p.out.column}),
        "rows": p.m, "n": p.n, "k": p.k, "batch1": p.batch[1], "batch2": p.batch[2], **finishing_args,
    }  # fmt: skip
    return runtime.launch("matvec", "gemm/gemv", defined, args, (groups * group, p.count), (group, 1))
