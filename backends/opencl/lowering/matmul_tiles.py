"""Matrix products on any GPU: tiles staged in local memory; where there are too few, groups share out their terms."""

from __future__ import annotations

from polyhal.backends.common.geometry import ceil_div, round_up
from polyhal.backends.common.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.products import Product
from polyhal.backends.opencl.dialect import type_name
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.matmul_arguments import bias, definitions, operands, uints
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.protocol import Launch

GROUP = 256
"""Work-items per tile."""
_SPLIT_TERMS = 256
_MAX_SPLITS = 32


def build(runtime: Runtime, p: Product) -> Launch:
    units = runtime.features.compute_units
    element = p.element
    # Large tiles reuse more; where there are too few to go round, their terms are shared out, or the tiles made smaller.
    few = _tile_count(p, 128) < units
    quads = 1 if element.itemsize > 4 or (few and _tile_count(p, 128) * (p.k // _SPLIT_TERMS) < units) else 2
    tile = 64 * quads
    tiles = _tile_count(p, tile)
    splits = max(1, min(4 * units // tiles, p.k // _SPLIT_TERMS, _MAX_SPLITS)) if tiles < 2 * units else 1
    depth = 8 * (3 - quads)
    terms = round_up(ceil_div(p.k, splits), depth)
    splits = ceil_div(p.k, terms)
    defined = definitions(
        p, QUADS=quads, DEPTH=depth, SPLIT=splits > 1, A_BY_ROWS=p.left.column == 1 or p.left.row != 1,
        B_BY_ROWS=p.right.column == 1 or p.right.row != 1,
    )  # fmt: skip
    target: Parameter = Workspace(p.temporary) if splits > 1 else Tensor(p.out.place)
    if splits > 1:
        defined["BIAS"] = False
    multiply = runtime.launch(
        "matmul_tiles", "matmul_tiles", defined,
        [
            Tensor(p.left.place), Tensor(p.right.place), *(bias(p) if splits == 1 else []), target,
            *uints(p.m, p.n, p.k, terms), *operands(p),
        ],
        (tiles // p.count * GROUP, splits, p.count), (GROUP, 1, 1),
    )  # fmt: skip
    if splits == 1:
        return multiply
    size = p.count * p.m * p.n
    total = runtime.launch(
        "matmul_sum", "matmul_sum",
        {"OUT_DTYPE": p.out_dtype.name, "DTYPE": p.dtype.name, "REAL": type_name(p.kind), "BIAS": p.bias is not None},
        [
            Workspace(p.temporary), *bias(p), Tensor(p.out.place), Constant(size, "ulong"), *uints(p.n, splits),
        ],
        (size,), (runtime.features.group_size,),
    )  # fmt: skip
    return LaunchSequence("matmul", (multiply, total), (splits * size * element.itemsize,))


def _tile_count(p: Product, tile: int) -> int:
    return ceil_div(p.m, tile) * ceil_div(p.n, tile) * p.count
