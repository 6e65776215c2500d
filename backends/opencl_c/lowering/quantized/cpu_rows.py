"""Products with quantised weights on processors, with epilogues, several matrices, and a norm before them."""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl_c.lowering.gemm import joined
from polyhal.backends.opencl_c.lowering.quantized.operands import operands
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Declined, Launch
from polyhal.hal.quantization.block_format import BlockFormat
from polyhal.hal.quantization.tiles import TILE

_TILES = 16
"""Maximum tiles of a work-item: its numbers of x are prepared once for all of them."""
_ITEMS = 4
"""Work-items per compute unit, for load balance: each prepares its numbers of x again."""
_FEW_ROWS, _MANY_ROWS = 4, 32
"""Rows of x per work-item: up to as many as have their sums in registers, or many, for which codes are decoded once."""


def build(runtime: Runtime, p: Product, form: BlockFormat) -> Launch | Declined:
    """Build the launch, or return the reason why the kernel does not compute this product. Raises KernelBuildError."""
    refused = _refused(p)
    if refused:
        return Declined(refused)
    rows = 1 << (p.m - 1).bit_length() if p.m <= _FEW_ROWS else _MANY_ROWS
    tiles, sets = p.n // TILE, ceil_div(p.m, rows)
    most = _TILES // 2 if p.joined is not None and p.joined.pairs else _TILES
    each = max(1, min(most, tiles * sets // (_ITEMS * runtime.features.compute_units)))
    definitions, args = operands(p, form)
    return runtime.launch(
        "quantized/cpu_rows",
        {**definitions, "ROWS": rows},
        {**args, "tiles_each": each},
        (ceil_div(tiles, each), sets),
        (1, 1),
    )


def _refused(p: Product) -> str:
    """Return the reason why the kernel does not compute this product; empty if it does."""
    if p.sum_class != "float" or p.out_dtype.itemsize > p.sum_dtype.itemsize:
        return f"x is {p.dtype.name}; the kernel adds in float32"
    if p.count != 1 or not p.m or p.n % TILE or (p.k > 1 and p.left.column != 1):
        return (
            f"{p.count} products of {p.m} rows and {p.n} columns; the kernel computes one, in tiles of contiguous terms"
        )
    if p.joined is not None and (len(p.joined.places) >= joined.MAX_MATRICES or not joined.divides(p, TILE)):
        return f"more than {joined.MAX_MATRICES} matrices, or matrices that are not whole tiles"
    return ""
