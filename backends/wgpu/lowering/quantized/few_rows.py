"""Products of few rows with quantised weights. Kernel: shaders/wgsl/quantized/few_rows.wgsl."""

from __future__ import annotations

from polyhal.backends.common.codegen.block_decoder import SPAN
from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least
from polyhal.backends.common.launching.launch import Tensor
from polyhal.backends.common.problems.quantized import QuantizedProduct
from polyhal.backends.wgpu.lowering.quantized.decoder import definitions
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.protocol import Launch
from polyhal.hal.quantization.tiles import TILE

MAX_ROWS = 16
_ROWS = 8
"""Maximum rows of x per workgroup, whose sums are in registers."""
_SLICES = 16
_FEW_TILES = 512
"""Tiles below which a workgroup has more slices, so that enough loads are in flight."""
LANES = 4
"""Numbers of x in a vector."""


def build(runtime: Runtime, p: QuantizedProduct, *, vectors: bool) -> Launch:
    """Build the launch. `vectors`: four numbers of x may be loaded at once."""
    features = runtime.features
    unroll = 1 if features.cpu or p.m > 1 else 2
    tiles = p.n // TILE
    slices = _SLICES
    while (
        not features.cpu
        and tiles < _FEW_TILES
        and slices < p.k // SPAN
        and 2 * slices * TILE <= features.max_group_size
    ):
        slices *= 2
    while slices * TILE > features.max_group_size:
        slices //= 2
    rows = min(_ROWS, power_of_two_at_least(p.m), features.local_memory // 4 // (slices * SPAN * unroll))
    room = features.local_memory // 4 // max(1, rows) // 2  # of what two workgroups have together
    step = slices * SPAN * unroll
    chunk = max(step, min(room, p.k) // step * step)
    variables = {
        **definitions(p.form.name),
        "DTYPE": p.dtype.name,
        "ROWS": max(1, rows),
        "SLICES": slices,
        "UNROLL": unroll,
        "CHUNK": chunk,
        "X_LANES": LANES if vectors else 1,
    }
    args = {**p.args(), "x": Tensor(0), "x_row": p.x_row}
    return runtime.launch("quantized/few_rows", variables, args, tiles * ceil_div(p.m, max(1, rows)))
