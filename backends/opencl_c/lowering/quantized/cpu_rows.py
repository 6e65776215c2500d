"""Products with quantised weights on processors."""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.problems.quantized import QuantizedProduct
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Launch
from polyhal.hal.quantization.tiles import TILE

_TILES = 16
"""Maximum tiles of a work-item: its numbers of x are prepared once for all of them."""
_ITEMS = 8
"""Work-items per compute unit, for load balance."""
_FEW_ROWS, _MANY_ROWS = 4, 32
"""Rows of x per work-item: up to as many as have their sums in registers, or many, for which codes are decoded once."""


def build(runtime: Runtime, p: QuantizedProduct) -> Launch:
    """Build the launch. Raises KernelBuildError."""
    rows = 1 << (p.m - 1).bit_length() if p.m <= _FEW_ROWS else _MANY_ROWS
    tiles, sets = p.n // TILE, ceil_div(p.m, rows)
    each = max(1, min(_TILES, tiles * sets // (_ITEMS * runtime.features.compute_units)))
    return runtime.launch(
        "quantized/cpu_rows",
        {"FORMAT": p.form.name, "DTYPE": p.dtype.name, "ROWS": rows},
        {**p.args(), "tiles_each": each},
        (ceil_div(tiles, each), sets),
        (1, 1),
    )
