"""Matrix products: which kernel takes which shapes.

All of them take operands of any strides, so that a transposed view costs no copy.
"""

from __future__ import annotations

from functools import partial

from polyhal.backends.common import products
from polyhal.backends.common.geometry import ceil_div
from polyhal.backends.common.launch import Tensor
from polyhal.backends.common.products import Product
from polyhal.backends.opencl.lowering import matmul_panels, matmul_tiles, matvec, tensor_cores
from polyhal.backends.opencl.lowering.epilogue import epilogue
from polyhal.backends.opencl.lowering.matmul_arguments import definitions, operands, uints
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.protocol import Launch

_SMALL = 1 << 15
"""Multiplications below which packing or tiling costs more than it saves."""
_SMALL_GROUP = 16
_SMALL_ROWS = 4


def build(runtime: Runtime, p: Product) -> Launch:
    """The launch for a product."""
    if p.dtype.kind == "bool":
        return _small(runtime, p)
    vector = matvec.build(runtime, p)
    if vector is not None:
        return vector
    if p.count * p.m * p.n * p.k <= _SMALL:
        return _small(runtime, p)
    if runtime.features.cpu:
        return matmul_panels.build(runtime, p)
    if min(p.m, p.n) < _SMALL_GROUP or runtime.capabilities.limits.max_group_size < matmul_tiles.GROUP:
        return _small(runtime, p)
    on_tensor_cores = tensor_cores.build(runtime, p) if runtime.features.tensor_cores else None
    return on_tensor_cores or matmul_tiles.build(runtime, p)


def _small(runtime: Runtime, p: Product) -> Launch:
    """Straight from memory."""
    finishing, finishing_parameters = epilogue(p)
    parameters = [
        Tensor(p.left.place), Tensor(p.right.place), *finishing_parameters, Tensor(p.out.place), *uints(p.m, p.n, p.k),
        *operands(p),
    ]  # fmt: skip
    items = (p.n, ceil_div(p.m, _SMALL_ROWS), p.count)
    defined = definitions(p, finishing, ROWS=_SMALL_ROWS, LOGICAL=p.out_dtype.kind == "bool")
    return runtime.launch("matmul_small", "matmul_small", defined, parameters, items, (_SMALL_GROUP, 1, 1))


batched = partial(products.batched, build)
LOWERINGS = products.lowerings(build, wide=True, epilogues=True)
