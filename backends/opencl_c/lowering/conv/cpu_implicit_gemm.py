"""Convolution and input gradient on CPUs as matrix products of weights and columns of pixels (im2col)."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Argument, LaunchSequence, Table, Tensor, Workspace
from polyhal.backends.common.problems.conv import Convolution, Pair
from polyhal.backends.common.problems.conv_planes import Phase, input_grad_planes, input_planes
from polyhal.backends.opencl_c.lowering.conv.cpu_layout import (
    Product,
    forward_product,
    input_grad_product,
    itemsize,
    packed_weights,
    work_items,
)
from polyhal.backends.opencl_c.lowering.gemm.cpu_panels import register_tile
from polyhal.backends.opencl_c.lowering.support.prefetch import prefetch_distance
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Launch

_KC, _WHOLE_KC = 128, 192
"""Maximum terms per pass, and of a single pass: the pixels of a tile then stay in the first-level cache."""
_WEIGHTS_BYTES = 1 << 20
"""Maximum bytes of weights that a work-item reads repeatedly: they stay in the second-level cache."""
_MIN_ROWS = 32
"""Minimum number of filters for which packing the pixels of each tap is faster."""
_MIN_ACROSS = 8
"""Minimum width of a result for which packing several taps is faster: each of its rows is copied separately."""


def is_faster(p: Product, stride: Pair, phases: Sequence[Phase]) -> bool:
    """Return whether this kernel supports a product and is faster than the kernel on tap planes."""
    if stride[1] > 2 or p.images.strides[3] != 1 or min(p.images.strides) < 0:
        return False
    taps, across = max(len(phase.taps) for phase in phases), min(phase.across for phase in phases)
    return taps <= _KC and worth_packing(p.weights.rows, taps, across)


def worth_packing(rows: int, taps: int, across: int) -> bool:
    """Return whether packing the pixels of each tap is faster for that many filters, taps and results per row."""
    return rows >= _MIN_ROWS and (taps == 1 or across >= _MIN_ACROSS)


def forward(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the launch of the convolution, with its bias; None if this kernel is slower."""
    g, p = c.geometry, forward_product(c)
    _, phase = input_planes(g, 0)
    return _multiply(runtime, p, g.size, g.stride, [phase]) if is_faster(p, g.stride, [phase]) else None


def input_grad(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the launch of the input gradient, one phase per remainder of a pixel's coordinates by the stride.

    None if this kernel is slower.
    """
    g, p = c.geometry, input_grad_product(c)
    _, phases = input_grad_planes(g, 0)
    return _multiply(runtime, p, g.result, (1, 1), phases) if is_faster(p, (1, 1), phases) else None


def _multiply(runtime: Runtime, p: Product, size: Pair, stride: Pair, phases: Sequence[Phase]) -> Launch:
    """Build the launch of the product with images of `size`, in which adjacent results read pixels at distance `stride`."""
    g, w = p.geometry, p.weights
    tile = register_tile(runtime, itemsize(p.real), w.rows, max(phase.down * phase.across for phase in phases))
    pack, weight_bytes = packed_weights(runtime, p, phases, tile)
    tiles = sum(ceil_div(phase.down * phase.across, tile.columns) for phase in phases)
    panels = ceil_div(w.rows, tile.rows)
    panels_each = ceil_div(panels, ceil_div(weight_bytes // g.groups, _WEIGHTS_BYTES))
    workers = work_items(runtime)
    while panels_each > 1 and tiles * p.count * ceil_div(panels, panels_each) < workers:
        panels_each = ceil_div(panels_each, 2)
    blocks = ceil_div(panels, panels_each)
    # Each work-item should use the weights of its block for many tiles.
    workers = min(ceil_div(workers, blocks), tiles * p.count)
    x_image, x_channel, x_row, x_column = p.images.strides
    _, out_channel, out_row, out_column = p.out.strides
    spread = g.stride if len(phases) > 1 else (1, 1)
    terms = w.channels * max(len(phase.taps) for phase in phases)
    args: dict[str, Argument] = {
        "x": Tensor(0),
        "weights": Workspace(p.target + 2),
        "out": Tensor(p.target),
        "partial": Workspace(p.target + 1),
        "table": _table(phases, tile.columns, out_row, out_column),
        "x_image": x_image,
        "x_channel": x_channel,
        "x_row": x_row,
        "x_column": x_column,
        "x_last": sum((n - 1) * s for n, s in zip(p.images.shape, p.images.strides, strict=True)),
        "out_channel": out_channel,
        "out_row": spread[0] * out_row,
        "out_column": spread[1] * out_column,
        "images": g.images,
        "groups": g.groups,
        "channels": w.channels,
        "filters": w.rows,
        "height": size[0],
        "width": size[1],
        "stride_h": stride[0],
        "stride_w": stride[1],
        "phases": len(phases),
        "taps": sum(len(phase.taps) for phase in phases),
        "tiles": tiles,
        "panels_each": panels_each,
        "workers": workers,
    }
    if p.bias is not None:
        args["bias"] = Tensor(p.bias)
    multiply = runtime.launch(
        "conv/cpu_implicit_gemm",
        {
            "DTYPE": p.images.dtype.name,
            "OUT_DTYPE": p.out.dtype.name,
            "REAL": p.real,
            "WIDTH": tile.width,
            "ROWS": tile.rows,
            "VECTORS": tile.vectors,
            "KC": terms if _KC < terms <= _WHOLE_KC else _KC,
            "BIAS": p.bias is not None,
            "PREFETCH_DISTANCE": prefetch_distance(runtime),
        },
        args,
        (workers, blocks),
        (1, 1),
    )
    partial = workers * blocks * panels_each * tile.rows * tile.columns * itemsize(p.real)
    return LaunchSequence((pack, multiply), (partial, weight_bytes))


def _table(phases: Sequence[Phase], columns: int, row: int, column: int) -> Table:
    """Return the argument `table` of conv/cpu_implicit_gemm.cl."""
    phase_info: list[int] = []
    shifts: list[int] = []
    tiles = 0
    for p in phases:
        first = p.first[0] * row + p.first[1] * column
        phase_info += [len(shifts) // 2, len(p.taps), p.down, p.across, first, tiles]
        shifts += [n for shift in p.shifts for n in shift]
        tiles += ceil_div(p.down * p.across, columns)
    return Table((*phase_info, *shifts))
