"""Products of few rows with quantised weights. Kernel: shaders/wgsl/quantized/few_rows.wgsl."""

from __future__ import annotations

from polyhal.backends.common.codegen.block_decoder import SPAN
from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, round_up
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
_FLOAT = 4
LANES = 4
"""Numbers of x in a vector."""


def build(runtime: Runtime, p: QuantizedProduct, *, vectors: bool) -> Launch:
    """Build the launch. `vectors`: four numbers of x may be loaded at once."""
    features = runtime.features
    tiles, spans = p.n // TILE, p.k // SPAN
    memory, rows = features.local_memory // _FLOAT, min(_ROWS, power_of_two_at_least(p.m))
    most = min(features.max_group_size // TILE, spans, memory // (rows * SPAN))
    slices = min(_SLICES, features.max_group_size // TILE)
    while not features.cpu and tiles < _FEW_TILES and 2 * slices <= most:
        slices *= 2
    unroll = 2 if p.m == 1 and spans >= 2 * slices and not features.cpu else 1
    step = slices * SPAN * unroll
    rows = max(1, min(rows, memory // step))
    room = memory // rows // 2  # so that two workgroups have memory at once
    chunk = max(step, min(room, round_up(p.k, step)) // step * step)
    variables = {
        **definitions(p.form.name),
        "DTYPE": p.dtype.name,
        "ROWS": rows,
        "SLICES": slices,
        "UNROLL": unroll,
        "CHUNK": chunk,
        "X_LANES": LANES if vectors else 1,
    }
    args = {**p.args(), "x": Tensor(0), "x_row": p.x_row}
    return runtime.launch("quantized/few_rows", variables, args, tiles * ceil_div(p.m, rows))
