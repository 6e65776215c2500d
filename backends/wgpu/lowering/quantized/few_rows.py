"""Products of few rows with quantised weights, with epilogues, several matrices and norms.

Kernel: shaders/wgsl/quantized/few_rows.wgsl.
"""

from __future__ import annotations

from polyhal.backends.common.codegen.block_decoder import SPAN
from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, round_up
from polyhal.backends.common.launching.launch import Tensor
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.wgpu.lowering.gemm import epilogue, joined
from polyhal.backends.wgpu.lowering.gemm.arguments import LANES, targets
from polyhal.backends.wgpu.lowering.gemm.arguments import definitions as store_sums
from polyhal.backends.wgpu.lowering.quantized.decoder import definitions
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.protocol import Declined, Launch
from polyhal.hal.quantization.block_format import BlockFormat
from polyhal.hal.quantization.tiles import TILE

_MAX_ROWS = 16
_ROWS = 8
"""Maximum rows of x per workgroup, whose sums are in registers."""
_SLICES = 16
_FEW_TILES = 512
"""Tiles below which a workgroup has more slices, so that enough loads are in flight."""
_FLOAT = 4


def build(runtime: Runtime, p: Product, form: BlockFormat) -> Launch | Declined:
    """Build the launch, or return the reason why the kernel does not compute this product."""
    if refused := _refused(runtime, p):
        return Declined(refused)
    features = runtime.features
    tiles, spans = p.n // TILE, p.k // SPAN
    memory, rows = features.local_memory // _FLOAT * 4 // 5, min(_ROWS, power_of_two_at_least(p.m))
    pairs, normed = p.joined is not None and p.joined.pairs, p.joined is not None and p.joined.norm is not None
    most = min(features.max_group_size // TILE, spans, memory // (rows * SPAN))
    slices = min(_SLICES, features.max_group_size // TILE)
    while not features.cpu and tiles * (1 + pairs) < _FEW_TILES and 2 * slices <= most:
        slices *= 2
    unroll = 2 if p.m == 1 and spans >= 2 * slices and not features.cpu else 1
    step = slices * SPAN * unroll
    sums_of_row = (1 + pairs + normed) * TILE * slices
    rows = max(1, min(rows, memory // max(step, sums_of_row)))
    room = memory // rows // 2  # so that two workgroups have memory at once
    chunk = max(step, min(room, round_up(p.k, step)) // step * step)
    of_joined, args = joined.joined(p, "blocks")
    variables = {
        **definitions(form.name),
        **store_sums(p, split=False),
        "ROWS": rows,
        "SLICES": slices,
        "UNROLL": unroll,
        "CHUNK": chunk,
        "X_LANES": LANES if p.left.aligned and (p.m == 1 or p.left.row % LANES == 0) else 1,
        **of_joined,
    }
    args = {
        **args,
        "x": Tensor(p.left.place),
        "blocks": Tensor(p.right.place),
        **targets(p),
        "x_row": p.left.row,
        "m": p.m,
        "n": p.n,
        "k": p.k,
    }
    return runtime.launch("quantized/few_rows", variables, args, tiles * ceil_div(p.m, rows))


def _refused(runtime: Runtime, p: Product) -> str:
    """Return the reason why the kernel does not compute this product; empty if it does."""
    if p.count != 1 or not 1 <= p.m <= _MAX_ROWS or p.left.column != 1:
        return f"{p.count} products of {p.m} rows; the kernel computes one of up to {_MAX_ROWS} rows without gaps"
    if p.joined is not None and (len(p.joined.places) >= joined.MAX_MATRICES or joined.divided(p, TILE)):
        return f"more than {joined.MAX_MATRICES} matrices, or parts of tiles"
    if joined.buffers(p) > (most := runtime.features.max_buffers):
        return f"the kernel has {joined.buffers(p)} buffers; the device supports {most}"
    return epilogue.refusal(runtime, p, copies=1)
